"""The broker: its tables, request handlers and life cycle."""

from engine.broker.broker import Broker
from engine.broker.config import BrokerConfig

__all__ = ["Broker", "BrokerConfig"]
