"""Pure functions that apply events to risk windows.

Place in the walk: `windows` decides which change an event is, this module carries it out. A reader
that was answered where to begin may read beside the one before it: both pull each new message, so
all of them come twice (`all_from_offset`), until messages that were there for a second came to one
reader only. A reader that stops pulling for longer than the samples are apart, that left, or that
says it does not hold the queue, is none meanwhile.

Invariant: a change leaves what was seen as it is. Absent on purpose: revisions and their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

from pipelines.base.settings import SECOND_US
from pipelines.marts.risks.events import Awaited, Event, NotReading, Progress
from pipelines.marts.risks.holdings import Range, size, united, within

ANSWER_SPAN_US: Final = 20 * SECOND_US
"""A reader that was answered where to begin has pulled by then: members divide the queues each 20
s. Until then commits of the reader before it end nothing; nor do those of readers that live on when
the broker dies: until the broker knows them all, somebody else may take their queues.
"""
PULLS_WITHIN_US: Final = 5 * SECOND_US
"""Who was answered where to begin has pulled by then, or has given the queue back; while the broker
is away the time stands still.
"""
HELD_AFTER_US: Final = 1 * SECOND_US
"""Who was answered where to begin, and says so much later that it does not hold the queue, gave it
back; before, it may not have taken it up.
"""
SECOND_READER_US: Final = 1 * SECOND_US
"""After so long each of two readers has pulled what the other has."""


@dataclass(frozen=True, slots=True)
class Window:
    """An interval in which messages of a queue were at risk, as its newest revision reports it."""

    opened_us: int
    revision: int
    basis: str
    cause: str
    client_id: str | None
    next_client_id: str | None
    from_offset: int
    to_offset: int
    certain: int | None
    uncertain: int | None
    redelivered_from: int | None
    redelivered_to: int | None
    redelivered: int
    all_from_offset: int | None = None
    finished: tuple[Range, ...] | None = None
    """Known to be finished when it opened, in the range or below it; None: not reported."""
    reader_is_gone: bool = False
    """`client_id` does not read the queue any more."""
    awaited: tuple[Awaited, ...] = ()
    """Readers that were answered where to begin and have not been seen to pull."""
    first_from_offset: int | None = None
    """`from_offset` when it opened; None: an earlier version opened it."""
    reached_us: int | None = None
    """Of one with two readers: since when `to_offset` is known to be pulled."""
    others: tuple[str | None, ...] = ()
    """Of one with two readers: who may pull in turn with the last one, which may be among them;
    None: somebody unknown.
    """
    has_left: bool = False
    """`client_id` has left, whoever else may read the queue."""

    @property
    def end(self) -> int:
        """A commit up to here ends it."""
        seen = self.redelivered_to
        return self.to_offset if seen is None else max(self.to_offset, seen)

    @property
    def expects_pull(self) -> bool:
        """Do pulls end it that go on behind its range without bringing it again?

        After a departure they do. After a restart readers pull on where they were; the range stays
        at risk until a commit.
        """
        return self.basis == "DEPARTURE" and not self.redelivered

    @property
    def lives_on(self) -> bool:
        """Did the broker die under a reader that may read on and not be known to it?"""
        return self.basis == "RESTART" and not self.reader_is_gone

    def awaits_reader(self, now_us: int) -> bool:
        """May somebody begin whose pull ends nothing, however far the others are?"""
        if any(one.told_us + ANSWER_SPAN_US > now_us for one in self.awaited):
            return True
        # Readers live on, it is said: until the broker knows them all, others may begin.
        is_said = self.lives_on and not self.redelivered and self.from_offset == self.to_offset
        return is_said and self.opened_us + ANSWER_SPAN_US > now_us

    @property
    def certain_ranges(self) -> tuple[Range, ...] | None:
        """Which offsets are certain; None when only their number is known, or not even that."""
        if self.certain is None or self.finished is None:
            return None
        ranges = within(self.finished, self.from_offset, self.to_offset) if self.certain else ()
        return ranges if size(ranges) == self.certain else None

    def is_past(self, progress: Progress) -> bool:
        """Has the group gone past the range?"""
        committed, pulled = progress.committed, progress.pulled
        is_awaited = self.awaits_reader(progress.event_us)
        is_committed = committed is not None and committed >= self.end
        if self.all_from_offset is not None:  # Past only when nothing is left to be read by two.
            is_due = progress.event_us >= self.opened_us + ANSWER_SPAN_US
            is_idle = pulled is not None and pulled <= self.to_offset
            return is_due and is_idle and is_committed and not is_awaited
        if is_committed and not is_awaited:
            return True
        return self.expects_pull and pulled is not None and pulled > self.to_offset


WINDOW_FIELDS: Final = tuple(one.name for one in fields(Window))
_FOR_THE_FOLD: Final = (
    *("finished", "reader_is_gone", "awaited", "reached_us"),
    *("others", "has_left"),
)
TOLD_FIELDS: Final = (
    *(name for name in WINDOW_FIELDS if name not in _FOR_THE_FOLD),
    "certain_ranges",
)


def opened(event: Event) -> Window:
    """A window as an opening, an answer, or a redelivery that nobody expected, begins it."""
    is_again = event.type == "REDELIVERY"
    is_answer = event.type == "ANSWER"
    certain = event.certain
    span = event.to_offset - event.from_offset
    uncertain = event.uncertain
    if uncertain is None and certain is not None:
        uncertain = span - certain
    all_from = _read_by_two(event) if is_answer else event.all_from_offset
    others = event.others
    if others is None:
        others = () if all_from is None else (event.client_id,)
    return Window(
        opened_us=event.event_us,
        revision=1,
        basis=event.basis,
        cause=event.cause,
        client_id=event.client_id,
        next_client_id=event.next_client_id,
        from_offset=event.from_offset,
        to_offset=event.to_offset,
        certain=certain,
        uncertain=uncertain,
        redelivered_from=event.from_offset if is_again else None,
        redelivered_to=event.to_offset if is_again else None,
        redelivered=event.messages,
        all_from_offset=all_from,
        finished=event.finished,
        reader_is_gone=event.reader_is_gone,
        first_from_offset=event.from_offset,
        awaited=_awaited_with((), event) if is_answer else event.awaited,
        others=others,
        has_left=event.has_left or event.reader_is_gone,
    )


def widened(event: Event, window: Window | None) -> Event:
    """An opening, with what is still to come of the window that it takes over: a reader that was
    answered where to begin may begin there, one that has gone does not live on, and of two readers
    the one behind pulls what the other has.
    """
    if window is None or window.basis == "REDELIVERY" or not goes_on_in(event):
        return event
    is_loss = event.basis == "RESTART"
    left = event.client_id if event.reader_is_gone and not is_loss else None
    others = _others_without(window.others, left)
    awaited = _awaited_without(window.awaited, left)
    if is_loss:  # Nobody could pull meanwhile.
        awaited = tuple(one._replace(told_us=event.event_us) for one in awaited)
    awaited = _still_awaited(awaited, event.event_us)
    is_read_by_two = window.all_from_offset is not None and bool(others)
    is_early = event.event_us < window.opened_us + ANSWER_SPAN_US
    is_the_reader = not is_loss and window.client_id == event.client_id
    is_unknown = window.lives_on and (not is_the_reader or is_read_by_two)
    event = replace(event, has_left=event.reader_is_gone)
    if is_unknown and event.reader_is_gone and (is_loss or is_early):
        # The broker has not heard of all its readers; whom it does not know may read on.
        all_from = None if is_loss else event.to_offset
        event = replace(event, certain=0, uncertain=None)
        event = replace(event, reader_is_gone=False, all_from_offset=all_from)
        others = (*others, None)
    elif is_read_by_two and event.reader_is_gone:  # The other one may read on behind all of it.
        event = replace(event, certain=0, uncertain=None, reader_is_gone=False)
    elif awaited and left is not None and event.finished is not None:
        event = _certain_for(event, awaited)
    # Whoever has pulled since may live on: what it has finished does not come again by itself.
    was_last = window.reader_is_gone and not window.redelivered
    was_last = was_last and event.to_offset <= window.to_offset
    if is_loss and was_last:
        assert event.kept_offset is not None, "a loss says what was kept"
        begin = window.from_offset if awaited else min(window.from_offset, event.kept_offset)
        event = _certain_with(_as_wide(event, window, begin), window)
    if awaited:
        begin = min(one.from_offset for one in awaited)
        event = replace(_as_wide(event, window, begin), awaited=awaited)
    if is_read_by_two:
        assert window.all_from_offset is not None, "one that two read says from where on"
        seen_twice_to = max(window.all_from_offset, window.redelivered_to or 0)
        begin = min(event.from_offset, seen_twice_to)
        goes_on = is_loss or window.redelivered or event.all_from_offset is not None
        all_from = event.to_offset if is_loss else min(event.to_offset, seen_twice_to)
        all_from = all_from if goes_on else None
        event = replace(event, from_offset=begin, all_from_offset=all_from, uncertain=None)
    if event.all_from_offset is not None:
        loser = () if event.reader_is_gone or event.has_left else (event.client_id,)
        event = replace(event, others=tuple(dict.fromkeys((*others, *loser))))
    return event


def _certain_for(event: Event, awaited: tuple[Awaited, ...]) -> Event:
    """A departure while somebody may begin that was answered where: what lies below may come to
    nobody, since commits of others have gone beyond it.
    """
    finished = within(
        event.finished or (), max(one.from_offset for one in awaited), event.to_offset
    )
    certain = size(within(finished, event.from_offset, event.to_offset))
    return replace(event, finished=finished, certain=certain, uncertain=None)


def _as_wide(event: Event, window: Window, begin: int) -> Event:
    """The opening from there on as well, and as far as the window."""
    return replace(
        event,
        from_offset=min(event.from_offset, begin),
        to_offset=max(event.to_offset, window.to_offset),
        next_client_id=window.next_client_id,
        uncertain=None,
    )


def _certain_with(event: Event, window: Window) -> Event:
    """The window's reader has gone: whoever comes next gets all of the range, finished or not."""
    finished = united(*(event.finished or ()), *(window.finished or ()))
    certain = size(within(finished, event.from_offset, event.to_offset))
    return replace(event, finished=finished, certain=certain, uncertain=None, reader_is_gone=True)


def answered(window: Window, event: Event) -> Window:
    """The window when a reader was answered where to begin: there, or further back where another
    may begin that was reported before.
    """
    end = max(window.to_offset, event.to_offset)
    awaited = _awaited_with(window.awaited, event)
    begin = min(end, *(one.from_offset for one in awaited))
    if window.redelivered:
        begin = min(begin, window.from_offset)
    all_from, others = window.all_from_offset, _others_without(window.others, event.next_client_id)
    overdue = _overdue(_awaited_without(window.awaited, event.next_client_id), event.event_us)
    others = tuple(dict.fromkeys((*others, *overdue)))
    before_may_read = window.lives_on or _read_by_two(event) is not None
    before_may_read = before_may_read and not _has_gone(window, event)
    if before_may_read or len(awaited) > 1:
        all_from = event.to_offset
    if before_may_read:
        others = (*others, *_may_read(window, event))
    certain, finished = window.certain, window.finished
    if finished is not None:
        if window.basis == "DEPARTURE":
            finished = united((begin, window.from_offset), *finished)
        is_sure = _gets_all(window, event)
        if is_sure:  # Any of those who were reported may be the one to begin.
            finished = within(finished, max(one.from_offset for one in awaited), end)
        certain = size(within(finished, begin, end)) if is_sure else 0
    elif certain is not None:
        certain = min(certain, end - begin)
    return replace(
        window,
        next_client_id=event.next_client_id,
        from_offset=begin,
        to_offset=end,
        certain=certain,
        uncertain=None if certain is None else end - begin - certain,
        finished=finished,
        all_from_offset=all_from,
        awaited=awaited,
        reached_us=event.event_us,
        others=others,
    )


def is_through(window: Window) -> bool:
    """Has all come again that was at risk when it was first reported?"""
    end = window.to_offset if window.all_from_offset is None else window.all_from_offset
    seen = window.redelivered_to
    return window.basis != "REDELIVERY" and seen is not None and seen >= end


def asked_anew(window: Window, event: Event) -> Window:
    """The window of an answer behind one of which all has come again: from where it reported, or,
    if another may read in turn, from where that one may be.
    """
    begun = replace(window, redelivered=0, certain=None, finished=None, basis=event.basis)
    renewed = answered(begun, event)
    begin, seen = renewed.from_offset, window.redelivered_to
    assert seen is not None, "of a window that is through something was seen"
    in_turn = _others_without(renewed.others, event.client_id)
    if window.all_from_offset is not None and in_turn:
        begin = min(begin, seen)
    return replace(
        renewed,
        opened_us=event.event_us,
        revision=1,
        cause=event.cause,
        client_id=event.client_id,
        from_offset=begin,
        first_from_offset=begin,
        certain=None,
        uncertain=None,
        redelivered_from=None,
        redelivered_to=None,
        reader_is_gone=False,
        has_left=False,
    )


def _may_read(window: Window, answer: Event) -> tuple[str | None, ...]:
    """Clients that may read the queue beside the one that was answered where to begin."""
    before = answer.client_id
    is_known_gone = window.has_left and window.client_id == before
    named = () if _read_by_two(answer) is None or is_known_gone else (before,)
    unknown = (None,) if window.lives_on else ()
    known = _others_without(window.others, answer.next_client_id)
    return tuple(one for one in (*named, *unknown) if one not in known)


def _has_gone(window: Window, answer: Event) -> bool:
    """Was the window's reader, who has gone, the last one that pulled?"""
    return window.reader_is_gone and window.client_id == answer.client_id


def _gets_all(window: Window, answer: Event) -> bool:
    """Does somebody get all that the reader before had finished? Not for certain while another one
    reads on: whoever asks then may be reported otherwise, or may give the queue back.
    """
    has_gone = _has_gone(window, answer)
    if not has_gone and answer.client_id != answer.next_client_id:
        return False
    if window.next_client_id is None:
        return window.all_from_offset is None
    if has_gone and not window.redelivered:
        return True  # Nobody has pulled since, whoever was reported.
    return window.next_client_id == answer.next_client_id and bool(window.certain)


def confirmed(window: Window, event: Event) -> Window:
    """The window with one more redelivery; one without a prediction grows with what it sees. One
    beyond the range shows that somebody else had pulled on: two members read the queue.
    """
    begin, end = event.from_offset, event.to_offset
    grows = window.basis == "REDELIVERY"
    before, behind = window.redelivered_from, window.redelivered_to
    all_from = window.all_from_offset
    is_behind_another = not grows and end > window.to_offset
    if is_behind_another and (all_from is None or end < all_from):
        all_from = end
    others = window.others
    if all_from is not None:  # Each of them may pull on, the one that pulls now as well.
        others = tuple(dict.fromkeys((*others, event.client_id, event.next_client_id)))
    return replace(
        window,
        next_client_id=event.next_client_id,
        from_offset=min(window.from_offset, begin) if grows else window.from_offset,
        to_offset=max(window.to_offset, end) if grows else window.to_offset,
        redelivered_from=begin if before is None else min(before, begin),
        redelivered_to=end if behind is None else max(behind, end),
        redelivered=window.redelivered + event.messages,
        all_from_offset=all_from,
        awaited=_awaited_without(window.awaited, event.next_client_id),
        others=others,
    )


def without_reader(window: Window, gone: NotReading) -> Window:
    """The window when a client is known not to read the queue. Who says that it does not hold it
    may have been answered where to begin since: then it will.
    """
    awaited = tuple(
        one
        for one in window.awaited
        if one.client_id != gone.client_id
        or not (gone.has_left or one.told_us + HELD_AFTER_US <= gone.event_us)
    )
    others = _others_without(window.others, gone.client_id)
    left = replace(window, awaited=awaited, others=others)
    if window.others and not others and window.has_left and not window.redelivered:
        return _read_by_nobody(left)
    if window.awaited and not awaited and _reads_on(left):
        return _withdrawn(left)
    return left


def _reads_on(window: Window) -> bool:
    """Is the reader that was there before the only one that may read the queue?"""
    is_alive = window.basis == "OFFSET_ANSWER" or window.lives_on
    is_alone = set(window.others) <= {window.client_id, None}
    return is_alive and is_alone and not window.redelivered and not window.has_left


def _withdrawn(window: Window) -> Window:
    """Who was answered where to begin will not: what the reader before has pulled it does not
    repeat, and whoever else comes asks again.
    """
    is_known = None not in window.others
    return replace(
        window,
        from_offset=window.to_offset,
        certain=None if window.certain is None else 0,
        uncertain=None if window.certain is None else 0,
        all_from_offset=None if is_known else window.all_from_offset,
        others=() if is_known else window.others,
    )


def _read_by_nobody(window: Window) -> Window:
    """Its reader has left, and so has the one beside it: whoever comes next gets all of it."""
    begin = max((one.from_offset for one in window.awaited), default=window.from_offset)
    certain, finished = window.certain, window.finished
    if finished is not None:
        finished = within(finished, begin, window.to_offset)
        certain = size(within(finished, window.from_offset, window.to_offset))
    span = window.to_offset - window.from_offset
    return replace(
        window,
        certain=certain,
        uncertain=None if certain is None else span - certain,
        finished=finished,
        reader_is_gone=True,
        all_from_offset=None,
    )


def goes_on_in(event: Event) -> bool:
    """Does the window that this opening makes carry on what is at risk in the one before it?"""
    is_loss = event.basis == "RESTART" and event.kept_offset is not None
    return is_loss or event.basis == "DEPARTURE"


def handed_on(window: Window) -> Window:
    """A window with two readers that a later event takes over: what only one of them has pulled,
    and the other one may pull, is at risk in the later one.
    """
    if window.all_from_offset is None or not window.redelivered:
        return window
    seen_twice_to = max(window.all_from_offset, window.redelivered_to or 0)
    if window.to_offset <= seen_twice_to:
        return window
    return _read_by_one(window, max(window.from_offset, seen_twice_to))


def moved_on(window: Window, progress: Progress) -> Window:
    """A window with two readers: all that was pulled is at risk, unless messages that were there
    for a while have come to one of them only.
    """
    all_from = window.all_from_offset
    assert all_from is not None
    if progress.pulled is None:
        return window
    # Of who had pulled last already when it was reported, that it pulled last says nothing.
    begun = None if progress.last_puller == window.client_id else progress.last_puller
    awaited = _awaited_without(window.awaited, begun)
    overdue = _overdue(awaited, progress.event_us)
    others = tuple(dict.fromkeys((*window.others, *overdue)))
    window = replace(window, others=others)
    window = replace(window, awaited=_still_awaited(awaited, progress.event_us))
    is_due = progress.event_us >= window.opened_us + ANSWER_SPAN_US
    is_awaited = window.awaits_reader(progress.event_us)
    has_begun = is_due or not is_awaited
    seen_twice_to = max(all_from, window.redelivered_to or 0)
    is_old = (
        window.reached_us is not None and progress.event_us - window.reached_us >= SECOND_READER_US
    )
    if has_begun and is_old and window.to_offset > seen_twice_to:
        return _read_by_one(window, max(window.from_offset, seen_twice_to))
    if progress.pulled <= window.to_offset:
        return window
    span, certain = progress.pulled - window.from_offset, window.certain
    return replace(
        window,
        to_offset=progress.pulled,
        uncertain=None if certain is None else span - certain,
        reached_us=progress.event_us,
    )


def _read_by_one(window: Window, end: int) -> Window:
    """A window whose second reader is not there: what lies behind `end` came to one only."""
    span, certain = end - window.from_offset, window.certain
    return replace(
        window,
        to_offset=end,
        uncertain=None if certain is None else max(0, span - certain),
        certain=None if certain is None else min(certain, span),
        all_from_offset=None,
        reached_us=None,
        others=(),
    )


def _read_by_two(answer: Event) -> int | None:
    """From where on, if the reader before may be there still."""
    is_other = answer.client_id is not None and answer.client_id != answer.next_client_id
    return answer.to_offset if is_other else None


def _awaited_with(awaited: tuple[Awaited, ...], answer: Event) -> tuple[Awaited, ...]:
    newest = Awaited(answer.next_client_id, answer.from_offset, answer.event_us)
    others = _awaited_without(awaited, answer.next_client_id)
    return *_still_awaited(others, answer.event_us), newest


def _awaited_without(awaited: tuple[Awaited, ...], client_id: str | None) -> tuple[Awaited, ...]:
    return tuple(one for one in awaited if client_id is None or one.client_id != client_id)


def _others_without(
    others: tuple[str | None, ...], client_id: str | None
) -> tuple[str | None, ...]:
    return tuple(one for one in others if client_id is None or one != client_id)


def _overdue(awaited: tuple[Awaited, ...], now_us: int) -> tuple[str | None, ...]:
    """Who is no longer awaited, and has not said that it gave the queue back."""
    still = _still_awaited(awaited, now_us)
    return tuple(one.client_id for one in awaited if one not in still)


def _still_awaited(awaited: tuple[Awaited, ...], now_us: int) -> tuple[Awaited, ...]:
    return tuple(one for one in awaited if one.told_us + PULLS_WITHIN_US > now_us)
