"""The commands `tidemark admin ...`: queries and changes on a cluster, ours or Apache's."""

from engine.admin.commands.command_tree import app

__all__ = ["app"]
