"""Interface to delayed messages: which ones are waiting, and when each one is due.

Place in the walk: a handler parks a draft, which is then put like any other; `delay_service` takes
what is due and puts it under its real topic. Implemented by the delay levels (`delay_levels`) and
by the time wheel (`wheel`), for any moment.

Invariant: what waits is a function of the log and of how far delivery went. Absent on purpose:
delivery (`delay_service`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from engine.store import MessageDraft

Wait_contra = TypeVar("Wait_contra", contravariant=True)
"""How long a message waits, in the implementer's words: a level, or a moment."""


@dataclass(slots=True)
class Due:
    """A parked record whose time has come."""

    topic: str
    """The topic that it waits in."""
    where: str
    """Its place there, in words."""
    delay_ms: int
    physical_offset: int
    record: memoryview
    """Its bytes as they are, perhaps damaged; void when the next one is asked for."""
    properties: bytes = b""
    """Added to those it was stored with, in RocketMQ's string form."""
    put_end: int = 0
    """Set by who delivers it: the log offset behind what was put for it; 0 when nothing was."""
    put_at: int = 0
    """Likewise: where in the log it lies."""
    real_topic: str = ""
    """Likewise: under which topic."""


class Delays(Protocol[Wait_contra]):
    """Messages that wait."""

    def park(self, draft: MessageDraft, wait: Wait_contra) -> MessageDraft:
        """Turn a draft into one that waits; its own place is stored with it."""
        ...

    def due(self) -> Iterator[Due | None]:
        """All that is due, oldest first; None where others shall have their turn.

        Asking for the next one says that the last one is delivered, or stepped over; whoever could
        not deliver it asks for no more, and it stays due. Raises StorageError.
        """
        ...

    async def wait(self) -> None:
        """Until something may be due."""
        ...
