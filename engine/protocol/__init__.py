"""RocketMQ's wire vocabulary, sans-IO: bytes in, values out, no socket, clock or file."""
