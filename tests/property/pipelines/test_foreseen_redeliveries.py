"""Whatever readers of a queue do, what comes again was at risk before it came.

A small broker and its readers play: members join, are answered where to begin, read in turn with
the one before them, die, and the broker dies with what only memory knew. Readers are prompt: each
pulls at least once between two samples. Every pull that goes back must lie in the window that was
open before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.marts.risks.events import Event, NotReading, Place, Progress
from pipelines.marts.risks.windows import WINDOWS, Fold, Happening, folded

MARKS = pa.schema(
    [
        *(WINDOWS.field(name) for name in Place._fields),
        *((name, pa.int64()) for name in ("seq", "event_us", "committed", "pulled")),
        ("last_puller", pa.string()),
    ]
)
PLACE = Place("c", "b", "c/b/0", "g", "t", 0)
SECOND = 1_000_000
NAMES = ("a", "b")


@dataclass
class Broker:
    """One queue, as the broker and its clients know it."""

    fold: Fold = field(default_factory=lambda: Fold(PLACE))
    happened: list[Happening] = field(default_factory=list)
    at_us: int = 0
    seq: int = 0
    end: int = 0
    pulled: int = 0
    committed: int = 0
    persisted: int = 0
    last_puller: str | None = None
    members: set[str] = field(default_factory=set)
    """Whom the broker knows; others that read on have not sent a heartbeat in its new life."""
    readers: dict[str, int] = field(default_factory=dict)
    """What each pulls next."""
    answered: dict[str, int] = field(default_factory=dict)
    """Where those begin that were answered and have not pulled."""
    loser: str | None = None
    """Who lost the queue since the group changed last."""

    def take(self, happening: Happening) -> None:
        self.happened.append(happening)
        self.fold.take([happening])

    def event(self, **what: object) -> None:
        self.seq += 1
        known = {"place": PLACE, "seq": self.seq, "event_us": self.at_us}
        self.take(Event(**known, **what))

    def ask(self, name: str) -> None:
        """A client joins and is answered where to begin."""
        if name in self.readers:
            return
        if name not in self.members:
            self.members.add(name)
            self.loser = None
        fields = {"type": "ANSWER", "basis": "OFFSET_ANSWER", "cause": "HAND_OVER"}
        marks = {"from_offset": self.committed, "to_offset": self.pulled}
        if self.last_puller is not None:
            self.event(**fields, **marks, client_id=self.last_puller, next_client_id=name)
        self.answered[name] = self.committed
        if self.committed >= self.pulled:  # Nothing is under way: whoever reads gives it up.
            self.readers.clear()
            self.begin(name)

    def begin(self, name: str) -> None:
        """A client that was answered pulls for the first time."""
        if name in self.answered:
            self.readers[name] = self.answered.pop(name)
            self.pull(name)

    def heartbeat(self, name: str) -> None:
        """A client that reads on is known to the broker again."""
        if name in self.readers and name not in self.members:
            self.members.add(name)
            self.loser = None

    def pull(self, name: str) -> None:
        begin = self.readers[name]
        if begin >= self.end:
            return
        if name in self.members:
            self.takes_over(name)
        if begin < self.pulled:
            self.comes_again(begin, name)
        self.readers[name] = self.end
        self.pulled = max(self.pulled, self.end)
        self.last_puller = name

    def produce(self, messages: int) -> None:
        """Messages come, and nobody pulls yet."""
        self.end += messages

    def pull_alone(self, name: str) -> None:
        """One reader is ahead of the other."""
        if name in self.readers:
            self.pull(name)

    def commit(self, _: None = None) -> None:
        """Who pulled last is through with it."""
        if self.last_puller in self.readers:
            self.committed = max(self.committed, self.readers[self.last_puller])

    def takes_over(self, name: str) -> None:
        """Who read before is inferred to have lost the queue."""
        before = self.last_puller
        if before is None or before == name or before not in self.members:
            return
        is_double = self.loser is not None and self.loser != before
        self.loser = before
        if self.committed < self.pulled or is_double:
            self.event(
                type="OPENING",
                basis="DEPARTURE",
                client_id=before,
                cause="DOUBLE_OWNER" if is_double else "HAND_OVER",
                from_offset=min(self.committed, self.pulled),
                to_offset=self.pulled,
                all_from_offset=self.pulled,
            )

    def comes_again(self, begin: int, name: str) -> None:
        window = self.fold.window
        assert window is not None, f"[{begin}, {self.pulled}) comes again, nothing was at risk"
        shared = window.all_from_offset
        for offset in range(begin, self.pulled):
            is_held = window.from_offset <= offset < window.to_offset
            assert is_held or (shared is not None and offset >= shared), (offset, window)
        self.event(
            type="REDELIVERY",
            basis="REDELIVERY",
            cause="HAND_OVER",
            from_offset=begin,
            to_offset=self.pulled,
            client_id=self.last_puller,
            next_client_id=name,
            messages=self.pulled - begin,
        )

    def dies(self, name: str) -> None:
        """A consumer is killed."""
        self.readers.pop(name, None)
        self.answered.pop(name, None)
        if name not in self.members:
            return
        self.members.discard(name)
        self.loser = None
        if self.last_puller == name and self.committed < self.pulled:
            self.event(
                type="OPENING",
                basis="DEPARTURE",
                cause="CONSUMER_CRASH",
                client_id=name,
                from_offset=self.committed,
                to_offset=self.pulled,
                certain=self.pulled - self.committed,
                finished=((self.committed, self.pulled),),
                reader_is_gone=True,
            )
        self.is_away(name, has_left=True)

    def gives_back(self, name: str) -> None:
        """A client that was answered where to begin leaves the queue to others."""
        self.answered.pop(name, None)

    def says_what_it_holds(self, name: str) -> None:
        """A member answers the broker's question."""
        if name in self.members and name not in self.readers and name not in self.answered:
            self.is_away(name, has_left=False)

    def is_away(self, name: str, *, has_left: bool) -> None:
        self.seq += 1
        self.take(NotReading(self.seq, self.at_us, name, has_left))

    def broker_dies(self) -> None:
        """What only memory knew is lost; who reads goes on, and who was answered begins there."""
        lives_on = bool(self.members)
        reached = max(self.committed, self.pulled)
        kept, committed, self.committed = self.persisted, self.committed, self.persisted
        if kept < reached:
            self.event(
                type="OPENING",
                basis="RESTART",
                cause="BROKER_CRASH",
                client_id=self.last_puller,
                from_offset=reached if lives_on else kept,
                to_offset=reached,
                kept_offset=kept,
                certain=0,
                finished=((kept, committed),),
                reader_is_gone=not lives_on,
            )
        self.members, self.loser = set(), None

    def second(self, produced: int) -> None:
        """Messages come, everybody pulls, who pulled last commits, and the broker reports."""
        self.at_us += SECOND
        self.end += produced
        for name in sorted(self.readers):
            self.pull(name)
        self.commit()
        if len(self.readers) == 1:
            self.members |= {*self.readers}
        self.seq += 1
        self.take(Progress(self.seq, self.at_us, self.committed, self.pulled))


BEGINNING: list[tuple[str, str | int | None]] = [("ask", "a"), ("second", 3)]
DOINGS = st.one_of(
    st.tuples(st.sampled_from(["ask", "begin"]), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["second", "produce"]), st.integers(1, 3)),
    st.tuples(st.just("pull_alone"), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["dies", "heartbeat"]), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["gives_back", "says_what_it_holds"]), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["broker_dies", "persist", "commit"]), st.none()),
)
STORIES = st.lists(DOINGS, min_size=5, max_size=25).map(lambda doings: BEGINNING + doings)


def played(doings: list[tuple[str, str | int | None]]) -> Broker:
    broker = Broker()
    for what, whom in doings:
        if what == "persist":
            broker.persisted = broker.committed
        elif what == "broker_dies":
            broker.broker_dies()
        else:
            getattr(broker, what)(whom)
    return broker


def story_of(doings: str) -> list[tuple[str, str | int | None]]:
    """A story in short: `ask b, second 1, broker_dies`."""
    story = list(BEGINNING)
    for doing in doings.split(", "):
        what, _, whom = doing.partition(" ")
        story.append((what, int(whom) if whom.isdigit() else whom or None))
    return story


@settings(max_examples=2000, deadline=None)
@given(STORIES)
@example(story_of("ask b, second 1, ask a, broker_dies, ask b, second 1, begin b"))
@example(story_of("broker_dies, broker_dies, ask b, second 1, begin b"))
@example(story_of("broker_dies, broker_dies, ask b, begin b, second 1"))
@example(story_of("dies a, broker_dies, ask a, ask b, begin b, second 1, begin a"))
@example(story_of("dies a, second 1, broker_dies, ask a, broker_dies, ask b, begin a, begin b"))
@example(story_of("ask b, broker_dies, ask a, dies a, ask a, second 1, begin a"))
@example(story_of("broker_dies, ask b, produce 1, begin b, broker_dies, pull_alone a"))
@example(story_of("produce 1, pull_alone a, ask b, second 1, begin b"))
def test_every_pull_that_goes_back_lies_in_a_window_that_was_open_before(
    doings: list[tuple[str, str | int | None]],
) -> None:
    for revision in played(doings).fold.revisions:
        if revision["certain"] is not None:
            span = revision["to_offset"] - revision["from_offset"]
            assert revision["certain"] + revision["uncertain"] == span
            assert 0 <= revision["certain"] <= span
            certain_ranges = revision["certain_ranges"]
            assert sum(end - begin for begin, end in certain_ranges) == revision["certain"]


@settings(max_examples=150, deadline=None)
@given(STORIES, st.sets(st.integers(1, 80)))
def test_risks_do_not_depend_on_where_their_events_were_cut(
    doings: list[tuple[str, str | int | None]], cuts: set[int]
) -> None:
    broker = played(doings)
    windows, revisions = WINDOWS.empty_table(), []
    for begin, end in pairwise([0, *sorted(cuts), len(broker.happened) + 80]):
        part = broker.happened[begin:end]
        marks = [{**PLACE._asdict(), **one._asdict()} for one in part if isinstance(one, Progress)]
        events = [one for one in part if isinstance(one, Event)]
        absent = [(PLACE, one) for one in part if isinstance(one, NotReading)]
        windows, revisions_now = folded(
            windows, events, pa.Table.from_pylist(marks, MARKS), absent=absent
        )
        revisions += revisions_now
    assert revisions == broker.fold.revisions
