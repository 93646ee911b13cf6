"""When a notice is tried again, and which one gives way when too many wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipelines.alerting.outbox.outcomes import (
    DELAY_MAX_US,
    FIRST_DELAY_US,
    Failed,
    Trouble,
    after,
    delay_us,
    is_due,
)
from pipelines.alerting.store.crowds import QueuedNotice, merged, replacements
from pipelines.database.limits import GIVE_UP_US
from tests.integration.alerting.stores import NOW_US, a_notice, an_alert, resolved

chances = st.floats(0, 1, exclude_max=True)


@given(st.integers(1, 10_000), chances)
def test_pauses_double_up_to_a_bound_and_are_spread_below_it(tries: int, chance: float) -> None:
    pause_us = delay_us(tries, chance)
    assert 0 <= pause_us < min(FIRST_DELAY_US * 2 ** min(tries - 1, 60), DELAY_MAX_US)
    assert delay_us(tries, 0.0) == 0
    assert delay_us(tries + 1, chance) >= pause_us


@given(
    st.sampled_from(Trouble),
    st.integers(1, 100),
    st.integers(0, GIVE_UP_US - 1),
    st.integers(0, 10 * DELAY_MAX_US),
    chances,
)
def test_what_failed_is_due_again_within_the_longest_pause(
    trouble: Trouble, tries: int, age_us: int, asked_us: int, chance: float
) -> None:
    then = after(
        Failed(trouble, "no", asked_us),
        tries=tries,
        failures=tries,
        created_us=NOW_US - age_us,
        now_us=NOW_US,
        chance=chance,
    )
    assert not then.is_given_up
    again_us = max(then.due_us, then.rest_until_us)
    assert NOW_US + min(asked_us, DELAY_MAX_US) <= again_us <= NOW_US + DELAY_MAX_US
    # A notice that is refused holds up no other one of its receiver.
    assert (then.rest_until_us == 0) == (trouble is Trouble.REFUSED)


def test_a_notice_that_is_too_old_is_given_up() -> None:
    failed = Failed(Trouble.UNREACHABLE, "x" * 10_000)
    then = after(
        failed, tries=9, failures=9, created_us=NOW_US - GIVE_UP_US, now_us=NOW_US, chance=0.5
    )
    assert then.is_given_up
    assert len(then.error) < 600


def test_a_moment_that_a_clock_ahead_has_noted_has_come() -> None:
    assert is_due(NOW_US, now_us=NOW_US)
    assert not is_due(NOW_US + DELAY_MAX_US, now_us=NOW_US)
    assert is_due(NOW_US + DELAY_MAX_US + 1, now_us=NOW_US)


queues = st.lists(st.tuples(st.sampled_from("ABCDE"), st.booleans()), max_size=30).map(
    lambda reported: [
        QueuedNotice(seq, group, sending) for seq, (group, sending) in enumerate(reported)
    ]
)


@given(queues, st.integers(0, 12))
def test_the_oldest_gives_way_to_a_newer_one_of_its_group(
    queue: list[QueuedNotice], waiting_max: int
) -> None:
    pairs = replacements(queue, waiting_max)
    gone = {older for older, _ in pairs}
    by_seq = {waiting.seq: waiting for waiting in queue}

    assert len(pairs) <= max(0, len(queue) - waiting_max)
    for older, newer in pairs:
        assert older < newer
        assert by_seq[older].group_id == by_seq[newer].group_id
        assert not by_seq[older].is_sending
        assert not by_seq[newer].is_sending
    left = [waiting for waiting in queue if waiting.seq not in gone]
    newest = {waiting.group_id: waiting.seq for waiting in queue if not waiting.is_sending}
    assert set(newest.values()) <= {waiting.seq for waiting in left}
    if len(left) > waiting_max:  # Nothing else could be replaced.
        assert all(
            waiting.is_sending or newest[waiting.group_id] == waiting.seq for waiting in left
        )
    # What each pair hands on reaches a notice that is left.
    into = dict(pairs)
    for older in gone:
        at = older
        while at in into:
            at = into[at]
        assert at not in gone


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)), st.integers(0, 12))
def test_who_takes_over_notifies_what_is_resolved(
    older: set[int], newer: set[int], alerts_max: int
) -> None:
    first = a_notice("old", alerts=(*map(resolved, sorted(older)), an_alert(77)))
    last = a_notice("new", alerts=tuple(map(an_alert, sorted(newer))))

    both = merged(first, last, alerts_max)

    assert both.notice_id == "new"
    assert both.alerts[: len(newer)] == last.alerts
    extra = both.alerts[len(newer) :]
    wanted = {resolved(queue).fingerprint for queue in older - newer}
    assert {alert.fingerprint for alert in extra} <= wanted
    assert len(extra) + both.truncated_alerts == len(wanted)
    assert len(both.alerts) <= max(alerts_max, len(newer))
