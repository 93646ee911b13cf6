"""The broker: its tables, its request handlers and its life cycle."""

from engine.broker.broker import Broker
from engine.broker.config import BrokerConfig

__all__ = ["Broker", "BrokerConfig"]
