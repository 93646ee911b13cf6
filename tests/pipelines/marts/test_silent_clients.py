"""A client that does not say what it holds: what is pulled is not finished, the consume offset
decides, and a message that waits is found, one alone too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipelines.base.settings import Evaluation
from pipelines.rules.burrow.over_time import BurrowRules
from pipelines.rules.from_bronze import observations_of
from pipelines.rules.observations import Ticks
from tests.pipelines.bronze_lake import SECOND, START_US
from tests.pipelines.marts.judges import JUDGES
from tests.pipelines.marts.played_group import FIRST, Work, played, states, windows
from tests.pipelines.marts.reported_story import Emitter, Rows, bronze, second
from tests.pipelines.partition import run

PERIOD_S = 10
DAYS_3 = 3 * 86_400
SHORT = Evaluation(window_ms=4_000, slide_ms=1_000, allowed_time_ms=2_000)
Row = dict[str, Any]


def facts_of(
    *,
    came_at: float,
    seconds: int = 140,
    period_s: int = PERIOD_S,
    finished_at: float | None = None,
    sample: Row | None = None,
    recommits: bool = False,
    **mark: Any,
) -> Rows:
    """A queue whose offset is 41 and whose message 41 comes at that second and stands, looked at
    each period as an observer does; `finished_at`: its client commits 42.
    """
    rows: Rows = {}
    broker = Emitter(rows)
    broker.at(0)
    broker.boot()
    broker.report("lifecycle", kind="SNAPSHOT", seq_from=1)
    for at in range(1, seconds, period_s):
        broker.at(at)
        has_come = came_at <= at
        committed = 42 if finished_at is not None and finished_at <= at else 41
        known = {
            "pulled": 42 if has_come else 41,
            "committed": committed,
            "max_offset": 42 if has_come else 41,
            "committed_state": "EXACT" if has_come and committed == 41 else "AT_END",
            "last_commit_time": broker.now_us if recommits else START_US - 600 * SECOND,
            "last_store_time": _moment(came_at),
            "reports": int(recommits),
            **mark,
        }
        waits = known["committed_state"] == "EXACT"
        known["store_time_at_committed"] = _moment(came_at) if waits else None
        broker.watermark(**known)
        if sample is not None:
            broker.sample(**sample)
        broker.at(at + period_s - 0.001)
        broker.ship()
    return rows


def looked_at(**story: Any) -> dict[str, list[Row]]:
    """Gold of `facts_of` that story."""
    return run(JUDGES, bronze(facts_of(**story)), Evaluation())


def _moment(at: float) -> int:
    return START_US + int(at * SECOND)


HOLDS_NOTHING = {"held_count": 0, "first_held": None, "client_committed": None}
FACTS: dict[str, Row] = {
    "offset reported again and again": {"recommits": True},
    "no offset reported": {},
    "an answer that holds nothing": {"sample": HOLDS_NOTHING},
    "an answer that holds nothing, and reports": {"sample": HOLDS_NOTHING, "recommits": True},
    "pulls whose moment nobody reports": {"last_pull_time": None, "last_puller": None},
}


@pytest.mark.parametrize("facts", FACTS)
@pytest.mark.parametrize("came_at", [32.0, 40.9], ids=["early in a period", "late in one"])
def test_one_message_that_waits_is_found_within_the_window_and_two_periods(
    facts: str, came_at: float
) -> None:
    gold = looked_at(came_at=came_at, **FACTS[facts])
    (window,) = gold["stalled_windows"]
    assert (window["rule"], window["kind"], window["state"]) == ("STALLED", "UNDETERMINED", "OPEN")
    assert "its client does not say what it holds" in window["evidence"]
    waited_s = second(window["observed_at"]) - came_at
    # Of a client that answers a stand begins at a look, else when the message came.
    assert 30 <= waited_s <= 30 + PERIOD_S * (2 if "sample" in FACTS[facts] else 1)
    assert states(gold)[-1][1] == "STALLED"


@pytest.mark.parametrize("recommits", [True, False])
def test_a_message_of_three_days_is_no_news_and_yet_not_ok(recommits: bool) -> None:
    """Offset 41, end 42, seen first when it has long waited: UNKNOWN for the first window."""
    gold = looked_at(came_at=-DAYS_3, recommits=recommits)
    assert [state for _, state in states(gold)] == ["UNKNOWN", "STALLED"]
    assert states(gold)[-1][0] <= 30 + 2 * PERIOD_S
    assert {row["unfinished_messages"] for row in gold["group_state"]} == {1}


def never_committed(came_at: float, *, began: int | None, end: int, members: int = 1) -> Row:
    """The marks of a group that reads a queue and has committed nothing of it."""
    waits = began is not None and began < end
    return {
        "committed": None, "persisted": None, "committed_state": "NONE", "began": began,
        "pulled": end, "max_offset": end, "members": members, "last_commit_time": None,
        "store_time_at_committed": _moment(came_at) if waits else None,
    }  # fmt: skip


def committing_never(*, came_at: float = 32, **mark: Any) -> dict[str, list[Row]]:
    """Gold of a queue that is looked at each ten seconds; `mark` goes to `never_committed`."""
    rows: Rows = {}
    broker = Emitter(rows)
    broker.at(0)
    broker.boot()
    broker.report("lifecycle", kind="SNAPSHOT", seq_from=1)
    for at in range(1, 90, PERIOD_S):
        broker.at(at)
        end = mark["end"] if came_at <= at else mark["end"] - 1
        broker.watermark(**never_committed(came_at, **{**mark, "end": end}), reports=0)
        broker.sample(**HOLDS_NOTHING)
        broker.at(at + PERIOD_S - 0.001)
        broker.ship()
    return run(JUDGES, bronze(rows), Evaluation())


def test_the_first_message_of_a_group_that_never_committed_is_found_as_any_other() -> None:
    """Its broker knows where it began to read: what waits from there on waits."""
    gold = committing_never(began=0, end=1)
    (window,) = gold["stalled_windows"]
    assert (window["rule"], window["kind"]) == ("STALLED", "UNDETERMINED")
    assert second(window["observed_at"]) - 32 <= 30 + 2 * PERIOD_S
    assert window["evidence"] == (
        "Group g stands on queue 0 of t on broker-a: its client does not say what it holds. No "
        "offset was committed for 30 s, while pulls went from 0 to 1; 1 message waits for 38 s. "
        "See its client's log and threads."
    )


def test_who_began_at_the_end_and_commits_nothing_is_well() -> None:
    """Old messages that lie before its beginning do not wait for it."""
    gold = committing_never(began=100, end=100, came_at=-60)
    assert {state for _, state in states(gold)} == {"OK"}
    assert gold["stalled_windows"] == []


def test_of_a_group_that_has_members_and_began_nobody_knows_where_no_message_is_said_to_wait() -> (
    None
):
    gold = committing_never(began=None, end=1, came_at=-60)
    (window,) = gold["stalled_windows"]
    assert (window["rule"], window["kind"]) == ("NO_OFFSET", "UNDETERMINED")
    assert window["evidence"] == (
        "Group g has committed no offset on queue 0 of t on broker-a, which keeps messages. No "
        "offset was committed for 30 s; whether any of messages [0, 1) waits is unknown. See its "
        "client's log and threads, or set an offset."
    )


def test_until_the_window_is_full_it_is_said_what_nobody_says() -> None:
    gold = looked_at(came_at=-15, seconds=31)
    newest = gold["group_state"][-1]
    assert newest["state"] == "UNKNOWN"
    assert newest["reason"] == (
        "Whether group g is well on queue 0 of t on broker-a is unknown: 1 message waits for 45 s; "
        "its client says neither what it holds nor that it is finished. It is 1 message behind on "
        "1 queue."
    )


def polling(asks_each_s: float | None, *, period_s: int = PERIOD_S) -> dict[str, list[Row]]:
    """Gold of a member of an observed cluster that says it holds nothing while a message waits from
    second 5 on. It pulls each so many seconds, as the broker holds its pulls for 20 to 25 s; None:
    it is paused, and pulled at second 3 for the last time.
    """
    rows: Rows = {}
    broker = Emitter(rows)
    broker.at(0)
    broker.boot()
    broker.report("lifecycle", kind="SNAPSHOT", seq_from=1)
    broker.report("lifecycle", kind="OBSERVED", report_each_ms=1000 * period_s)
    known = None
    for at in range(7, 150, period_s):
        broker.at(at)
        last = _moment(3 if asks_each_s is None else 3 + (at - 3) // asks_each_s * asks_each_s)
        if last != known:
            marks = {"committed": 0, "persisted": 0, "pulled": 0, "max_offset": 1, "reports": 1}
            times = {"last_pull_time": last, "store_time_at_committed": _moment(5)}
            broker.watermark(**marks, **times, last_commit_time=broker.now_us)
            broker.sample(held_count=0, client_committed=0, last_pull_time=last, answered=True)
            known = last
        broker.at(at + period_s - 0.001)
        broker.ship()
    return run(JUDGES, bronze(rows), Evaluation())


@pytest.mark.parametrize("asks_each_s", [20, 25])
def test_who_is_looked_at_each_ten_seconds_is_not_paused_between_two_of_its_pulls(
    asks_each_s: int,
) -> None:
    """Seen of a real Go client: its pulls are held for up to 25 s, and seen 10 s later at most."""
    gold = polling(asks_each_s)
    assert "PAUSED" not in dict(map(reversed, states(gold)))
    assert [row[1:] for row in windows(gold)] == [("STALLED", "UNDETERMINED", "OPEN")]


@pytest.mark.parametrize("period_s", [10, 20])
def test_who_is_paused_on_an_observed_cluster_is_never_said_to_stand(period_s: int) -> None:
    gold = polling(None, period_s=period_s)
    assert [row[1:] for row in windows(gold)] == [("PAUSED", "PAUSED", "OPEN")]
    assert [state for _, state in states(gold)] == ["OK", "UNKNOWN", "PAUSED"]


def test_a_message_that_is_finished_in_time_was_no_trouble() -> None:
    gold = looked_at(came_at=32, finished_at=55)
    assert [state for _, state in states(gold)] == ["OK"]
    assert gold["stalled_windows"] == []


def reporting(commit_s: float, *, seconds: int) -> Work:
    """A hundred messages a second, finished within a second, reported each so many seconds by a
    client that says nothing else.
    """
    return Work(
        lambda at: FIRST + int(100 * at),
        lambda at: FIRST + max(0, int(100 * at) - 100),
        stored=lambda offset: (offset - FIRST) / 100,
        commit_s=commit_s,
        seconds=seconds,
        reports=False,
    )


@pytest.mark.parametrize("commit_s", [45, 100])
def test_what_is_pulled_is_never_called_finished(commit_s: float) -> None:
    """Its reports are rare, and known to be: it is well, and nobody claims what it finished."""
    gold = played(reporting(commit_s, seconds=int(4 * commit_s)))
    later = [row for row in gold["group_state"] if second(row["observed_at"]) > 2 * commit_s + 10]
    assert {row["state"] for row in later} == {"OK"}
    assert all(row["unfinished_messages"] == row["lag_messages"] for row in later)
    assert not any("unfinished" in row["reason"] for row in gold["group_state"])


@pytest.mark.parametrize("answers", [False, True], ids=["no answer", "it holds nothing"])
def test_rare_reports_are_known_to_be_rare_after_a_quiet_time_too(answers: bool) -> None:
    """A message a second comes for twenty minutes, none for twenty, and one a second again."""

    def end(at: float) -> int:
        return FIRST + int(min(at, 1_250) + max(0.0, at - 2_450))

    def stored(offset: int) -> float:
        return offset - FIRST + (1_200 if offset - FIRST >= 1_250 else 0)

    work = Work(end, lambda at: end(max(0.0, at - 1)), 600, 3_050, stored, reports=False)
    gold = played(replace(work, holds_nothing=answers))
    assert {state for at, state in states(gold) if at > 1_210} <= {"OK"}
    assert not [at for at, *_ in windows(gold) if at > 1_210]


def test_a_window_shorter_than_two_usual_reports_does_not_call_a_silent_client_stuck() -> None:
    assert windows(played(reporting(5, seconds=40), SHORT)) == []


@pytest.mark.parametrize(("is_pulled", "after_s"), [(True, 10), (False, 4)])
def test_no_report_is_waited_for_of_a_queue_that_nobody_pulls(
    is_pulled: bool, after_s: int
) -> None:
    """Whose queue is pulled may report it within five seconds, twice; else the window decides."""
    last = {} if is_pulled else {"last_pull_time": START_US - 60 * SECOND}
    facts = facts_of(came_at=10.5, seconds=40, period_s=1, **last)
    (window,) = run(JUDGES, bronze(facts), SHORT)["stalled_windows"]
    assert after_s <= second(window["observed_at"]) - 10.5 <= after_s + 2


@pytest.mark.parametrize(("commit_s", "opened"), [(0.02, 0), (5, 0), (15, 0), (60, 2)])
def test_a_client_is_taken_to_report_as_rocketmq_s_do_until_it_was_seen_to_report_twice(
    commit_s: float, opened: int
) -> None:
    """Before, nobody knows whether its message is stuck: the window says so, and no more."""
    gold = played(reporting(commit_s, seconds=300))
    found = windows(gold)
    assert [kind for _, _, kind, state in found if state == "OPEN"] == ["UNDETERMINED"] * opened
    assert all(at <= 2 * commit_s + 5 for at, _, _, _ in found)


def burrow_says(rows: Rows) -> list[tuple[float, str]]:
    """What Burrow's evaluator says of the same facts, asked each 5 s."""
    facts = bronze(rows)
    observed = observations_of([], [], facts["group_watermarks"].to_pylist())
    ticks = Ticks(START_US, START_US + 140 * SECOND, 5 * SECOND)
    (verdicts,) = BurrowRules().judge_group(observed, ticks).queues.values()
    return [((one.begin_us - START_US) / SECOND, one.state) for one in verdicts]


def test_burrow_says_of_the_same_facts_what_its_page_says() -> None:
    """docs/burrow.md, “Clients that do not say what they hold”."""
    assert burrow_says(facts_of(came_at=32)) == [(0, "NOTFOUND")]
    assert burrow_says(facts_of(came_at=32, recommits=True)) == [(0, "NOTFOUND"), (15, "OK")]
    assert burrow_says(facts_of(came_at=-DAYS_3, recommits=True)) == [
        (0, "NOTFOUND"),
        (15, "STOP"),
        (25, "STALL"),
    ]
