"""RocketMQ's wire protocol, implemented without sockets, clocks or files."""
