"""Time wheel that holds messages until any future time, using one delay log per hour."""

from engine.delay.wheel.time_wheel import TimeWheel

__all__ = ["TimeWheel"]
