"""Records what groups of a recreated topic were promised, and what they got.

A life of the topic begins when its creation was answered and ends when its deletion is asked for.
A message binds its life when its send began in it and was acknowledged before it ended; what falls
between two lives may be in either, and binds none. The ledger is outside every node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

HANDS_S = 20.0
"""A message that a client had pulled before a deletion may be worked on for so long after it."""
BROKEN_TOLD_MAX = 6


@dataclass(slots=True)
class Life:
    """One life of the topic, in seconds of the loop."""

    number: int
    began_s: float
    ended_s: float | None = None
    """When its end was asked for."""
    gone_s: float | None = None
    """When its end was answered."""
    bound: dict[bytes, None] = field(default_factory=dict)


class LivesLedger:
    """The lives of one topic, and what each group processed."""

    def __init__(self, groups: Iterable[str], now_s: Callable[[], float]) -> None:
        self.lives: list[Life] = []
        self.processed: dict[str, dict[bytes, int]] = {group: {} for group in groups}
        self.broken: dict[str, list[str]] = {}
        """What broke a law, by law."""
        self.befell: list[str] = []
        """What happened, with the seconds of the loop."""
        self._now_s = now_s
        self._life_of: dict[bytes, Life] = {}

    @property
    def present(self) -> Life | None:
        """The life the topic is in; None between two of them."""
        if not self.lives or self.lives[-1].ended_s is not None:
            return None
        return self.lives[-1]

    def begin(self) -> None:
        """A creation was answered."""
        assert self.present is None, "a topic has one life at a time"
        self.lives.append(Life(len(self.lives) + 1, self._now_s()))
        self.note(f"life {self.lives[-1].number} begins")

    def end(self) -> None:
        """A deletion is about to be asked for."""
        if self.present is not None:
            self.present.ended_s = self._now_s()
            self.note(f"life {self.lives[-1].number} ends")

    def gone(self) -> None:
        """The deletion was answered."""
        self.lives[-1].gone_s = self._now_s()

    def acknowledged(self, life: Life | None, body: bytes) -> None:
        """A send that began in `life` was acknowledged."""
        if life is not None and life is self.present:
            life.bound[body] = None
            self._life_of[body] = life

    def finish(self, group: str, body: bytes, *, is_fresh: bool) -> None:
        """A listener of the group has finished a message; `is_fresh`: soon after it was pulled."""
        done = self.processed[group]
        done[body] = done.get(body, 0) + 1
        life = self._life_of.get(body)
        if life is None or life.gone_s is None or not is_fresh:
            return
        if self._now_s() - life.gone_s > HANDS_S:
            self.break_law("a dead message is processed", f"{group} {body!r}")

    def pulled(self, group: str, bodies: Iterable[bytes], asked_s: float) -> None:
        """A pull of the topic that was asked then brought these."""
        for body in bodies:
            life = self._life_of.get(body)
            if life is not None and life.gone_s is not None and asked_s > life.gone_s:
                self.break_law("a dead message is pulled", f"{group} {body!r}")

    def missing(self) -> dict[str, list[bytes]]:
        """What binds the present life and a group has not processed, by group."""
        bound = self.lives[-1].bound
        found = {
            group: [body for body in bound if body not in done]
            for group, done in self.processed.items()
        }
        return {group: bodies for group, bodies in found.items() if bodies}

    def note(self, what: str) -> None:
        """Something happens now."""
        self.befell.append(f"{self._now_s():.1f} {what}")

    def break_law(self, law: str, how: str) -> None:
        """Note a breach; `check` raises all of them at the end, so that a run shows every one."""
        self.broken.setdefault(law, []).append(f"{self._now_s():.1f} s: {how}")

    def check(self) -> None:
        """Fail with what was broken, law by law."""
        assert not self.broken, (
            "\n".join(
                f"{law} ({len(examples)}): {'; '.join(examples[:BROKEN_TOLD_MAX])}"
                for law, examples in sorted(self.broken.items())
            )
            + "\nbefell: "
            + "; ".join(self.befell)
        )
