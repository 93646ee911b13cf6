"""The time wheel: messages that wait for any moment, in a log for each hour, by second."""

from engine.delay.wheel.time_wheel import TimeWheel

__all__ = ["TimeWheel"]
