"""The broker: its tables, its answers, its life."""

from engine.broker.broker import Broker
from engine.broker.config import BrokerConfig

__all__ = ["Broker", "BrokerConfig"]
