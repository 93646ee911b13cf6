"""Delay levels: messages that wait before they are delivered."""

from engine.delay.delay_service import DelayService

__all__ = ["DelayService"]
