"""The time wheel: holds messages for any future moment, in hourly logs linked by second."""

from engine.delay.wheel.time_wheel import TimeWheel

__all__ = ["TimeWheel"]
