"""The `tidemark admin` commands: query and change a cluster, ours or Apache's."""

from engine.admin.commands.command_tree import app

__all__ = ["app"]
