"""The `tidemark admin` commands, which query and change a Tidemark or RocketMQ cluster."""

from engine.admin.commands.command_tree import app

__all__ = ["app"]
