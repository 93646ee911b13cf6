"""RocketMQ's wire protocol, sans-IO: bytes in, values out, no socket, clock or file."""
