"""Lists the commands that can run as long operations, all of which end without intervention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from engine.foundation.errors import ConfigError

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "report": ("reports", "run"),
    "replay": ("pipeline", "replay"),
    "reset": ("admin", "offset", "reset"),
    "redrive": ("admin", "dlq", "redrive"),
    "check": ("check",),
    "backtest": ("backtest",),
}
"""By the name under which they are listed: the words with which a command begins."""


def kind_of(command: Sequence[str]) -> str:
    """The kind of a command; raises ConfigError for one that is no long action."""
    for kind, words in KINDS.items():
        if tuple(command[: len(words)]) == words:
            return kind
    allowed = "one that begins with " + ", ".join(" ".join(words) for words in KINDS.values())
    raise ConfigError("command", " ".join(command[:4]), allowed)
