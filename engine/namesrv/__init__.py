"""The name server: which broker serves which topic."""

from engine.namesrv.config import NameServerConfig
from engine.namesrv.namesrv import NameServer

__all__ = ["NameServer", "NameServerConfig"]
