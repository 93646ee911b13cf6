"""A complete RocketMQ-class message engine in Python: name server, broker and client.

The rooms, lowest first: foundation, protocol, runtime, remoting, store, delay and telemetry,
broker, namesrv and client. Upper rooms import lower ones only. The walk of a message through them
is drawn in ARCHITECTURE.md.
"""
