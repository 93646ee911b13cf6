"""The commands `tidemark admin ...`: questions and orders to a cluster, ours or Apache's."""

from engine.client.commands.admin import app

__all__ = ["app"]
