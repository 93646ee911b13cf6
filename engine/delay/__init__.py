"""Delayed messages: the port of what waits, the 18 levels behind it, their delivery."""

from engine.delay.delay_levels import DelayLevels
from engine.delay.delay_service import DelayService
from engine.delay.delays import Delays

__all__ = ["DelayLevels", "DelayService", "Delays"]
