"""More open alerts than anybody could look at: what is open stays, and what begins is bounded."""

from __future__ import annotations

from dataclasses import replace

from pipelines.alerting.alerts import Alert, Course, State, fingerprint_of
from pipelines.alerting.life_cycle import Change, ChangeKind
from pipelines.alerting.step import Bounded, bounded


def alert(
    number: int, *, rule: str = "Stalled", severity: str = "warning", over_at_us: int | None = None
) -> Alert:
    labels = {"group": f"g{number}"}
    state = State.FIRING if over_at_us is None else State.RESOLVED
    return Alert(
        fingerprint_of(rule, labels), rule, severity, "", labels, {}, {}, state, "", 0, 0,
        over_at_us, 0, Course(phase_us=over_at_us or 0),
    )  # fmt: skip


def after(
    before: list[Alert],
    now: list[Alert],
    *,
    notified: tuple[Alert, ...] = (),
    most: tuple[int, int],
) -> Bounded:
    known = {one.fingerprint: one for one in before}
    changes = [Change(ChangeKind.FIRED, one) for one in now if known.get(one.fingerprint) != one]
    known_to = {one.fingerprint for one in notified}
    return bounded(now, changes, before=known, notified=known_to, most=most)


def test_within_the_bounds_everything_is_as_it_was_decided() -> None:
    now = [alert(number) for number in range(3)]
    found = after([], now, most=(3, 0))
    assert (list(found.alerts), len(found.changes), found.left_out) == (now, 3, {})


def test_what_is_open_stays_and_the_worst_of_what_is_new_begins() -> None:
    old = [alert(number, severity="info") for number in range(3)]
    new = [alert(number) for number in range(10, 14)]
    bad = alert(20, rule="Dead", severity="critical")
    found = after(old, [*old, *new, bad], most=(5, 9))
    assert all(one in found.alerts for one in old)
    assert bad in found.alerts
    assert len(found.alerts) == 5
    assert found.left_out == {"Stalled": 3}
    assert {change.alert.fingerprint for change in found.changes} == {
        one.fingerprint for one in found.alerts if one not in old
    }


def test_one_that_was_resolved_and_may_not_begin_again_is_resolved_still() -> None:
    old, over = alert(1), alert(2, over_at_us=5)
    again = replace(over, state=State.PENDING)
    found = after([old, over], [old, again], most=(1, 9))
    assert list(found.alerts) == [old, over]
    assert found.changes == []


def test_of_the_resolved_the_oldest_are_forgotten_early_but_never_one_that_somebody_knows() -> None:
    over = [alert(number, over_at_us=number) for number in range(1, 6)]
    found = after(over, over, notified=(over[0],), most=(9, 3))
    assert [one.labels["group"] for one in found.alerts] == ["g1", "g4", "g5"]
    assert {(one.kind, one.alert.labels["group"]) for one in found.changes} == {
        (ChangeKind.FORGOTTEN, "g2"),
        (ChangeKind.FORGOTTEN, "g3"),
    }
