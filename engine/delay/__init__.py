"""Messages that wait: the delay levels."""

from engine.delay.delay_service import DelayService

__all__ = ["DelayService"]
