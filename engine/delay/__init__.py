"""Delayed messages: the delay interface, 18 delay levels, the time wheel and delivery."""

from engine.delay.delay_levels import DelayLevels
from engine.delay.delay_service import DelayService
from engine.delay.delays import Delays
from engine.delay.level_marks import LevelMarks
from engine.delay.wheel import TimeWheel

__all__ = ["DelayLevels", "DelayService", "Delays", "LevelMarks", "TimeWheel"]
