"""The name server, which maps topics to the brokers that serve them."""

from engine.namesrv.config import NameServerConfig
from engine.namesrv.namesrv import NameServer

__all__ = ["NameServer", "NameServerConfig"]
