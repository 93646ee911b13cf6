"""Counts messages that were delivered again, over windows of duplicate risk.

It also says what is not known of them.

Place in the walk: gold duplicate_risk_windows → one figure of several windows, in words, wherever a
person reads it: pages, `tm`, the demo.

A broker reports each pull that brings messages again. Somebody who watches it from outside sees
only what members hold: what it saw is the least, and of a window in which it saw nothing it is
unknown.

Invariant: nothing that is unknown counts as 0. Absent on purpose: the windows themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipelines.base.wording import at_least, plural, unknown

OBSERVED: Final = "OBSERVED"
"""`redelivered_unknown_reason` of a broker that is watched from outside."""


@dataclass(frozen=True, slots=True)
class CameAgain:
    """Messages that were delivered again."""

    messages: int | None
    """None: unknown. With a reason, the least."""
    reason: str | None = None
    """Why it is unknown, or only the least; None: it is exact."""

    @property
    def number(self) -> str:
        """`5`, `at least 5`, or that it is unknown, and why."""
        return at_least(self.messages, reason=self.reason)

    @property
    def text(self) -> str:
        """`5 messages`, `at least 1 message`, or that it is unknown how many, and why."""
        if self.messages is None:
            return f"how many messages is {unknown(self.reason)}"
        said = plural(self.messages, "message")
        return f"at least {said}" if self.reason else said


def came_again(windows: Iterable[Mapping[str, Any]], *, is_observed: bool = False) -> CameAgain:
    """The sum over rows of duplicate_risk_windows.

    is_observed: something that they are about is watched from outside, whether any window tells so
    or not; that none opened does not mean that nothing came again.
    """
    reason = OBSERVED if is_observed else None
    seen = 0
    for row in windows:
        seen += row["redelivered_messages"] or 0
        reason = reason or row["redelivered_unknown_reason"]
    return CameAgain(None if reason and not seen else seen, reason)
