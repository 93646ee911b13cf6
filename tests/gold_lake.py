"""Writes a seeded lake with a story of fifteen minutes: bronze facts and their gold rows.

Three groups read two topics of one broker. `billing` is well: a third member joins, and one poison
message ends as a dead letter. `shipping` is slow for a while, later a listener never returns and
queue 2 stands still until the end. `ledger` loses a member to a crash before its commit, the heir
pulls 14 messages again, and a broker restart sets its offsets back to the persisted ones.

Dashboards, expectations and the notebook share it. Offsets follow closed formulas, so every figure
in gold can be checked by hand; nothing here calls the marts.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from pipelines.lake.lake import Lake
from tests.lake_lag import (
    CRASH,
    FROZEN,
    JOIN,
    POISON,
    SLOW_FROM,
    SLOW_TO,
    TAKEN_OVER,
    Queue,
    write_lag,
)
from tests.lake_story import BACK, END, LENGTH_S, RESTART, START, Cast, Story, at, write_story

HANG: Final = 400
"""From then on a slave stores nothing."""
_COUNTED: Final = {"count": 18, "duration_us_sum": 90_000, "duration_us_max": 41_000}
_COUNTED_NONE: Final = dict.fromkeys(_COUNTED, 0)

__all__ = ["END", "START", "Cast", "write_gold_lake"]


def write_gold_lake(root: Path, *, cast: Cast | None = None, seed: int = 7) -> Lake:
    """Tell the story and write it below `root`; the same seed gives the same rows, and a copy of
    what was written once is had for a hundredth of the price: to its ids it is the same lake.
    """
    story = _written_once(cast or Cast(), seed)
    shutil.copytree(story, root, dirs_exist_ok=True)
    return Lake.at(str(root))


@functools.cache
def _written_once(cast: Cast, seed: int) -> Path:
    """Where a story was written, to be copied; gone at the end of the process."""
    folder = Path(tempfile.mkdtemp(prefix="tidemark-gold-lake-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _write(folder, cast, seed)
    return folder


def _write(root: Path, cast: Cast, seed: int) -> Lake:
    story = Story(cast)
    queues = write_lag(story, seed)
    _members(story)
    _stalls(story)
    _duplicates(story, queues)
    _poison(story)
    _restored_offsets(story)
    _storage(story)
    _checks(story)
    return write_story(story, Lake.at(str(root)))


def _members(story: Story) -> None:
    """Who joined and left, and who held which queue when."""
    cast = story.cast
    events: list[tuple[float, str, str, str, int, int, str | None]] = [
        (1, cast.billing, "billing-1@10.0.0.11", "JOINED", 0, 1, None),
        (1.2, cast.billing, "billing-2@10.0.0.11", "JOINED", 1, 2, None),
        (1.4, cast.shipping, "shipping-1@10.0.0.12", "JOINED", 0, 1, None),
        (1.6, cast.shipping, "shipping-2@10.0.0.12", "JOINED", 1, 2, None),
        (1.8, cast.ledger, "ledger-1@10.0.0.21", "JOINED", 0, 1, None),
        (2, cast.ledger, "ledger-2@10.0.0.22", "JOINED", 1, 2, None),
        (JOIN, cast.billing, "billing-3@10.0.0.13", "JOINED", 2, 3, None),
        (CRASH + 2, cast.ledger, "ledger-2@10.0.0.22", "EXPIRED", 2, 1, "CONNECTION_LOST"),
        (BACK + 3, cast.ledger, "ledger-1@10.0.0.21", "JOINED", 0, 1, "after broker restart"),
    ]
    for number, (t, group, client, kind, before, after, reason) in enumerate(events, start=1):
        fields = {
            "group": group,
            "client_id": client,
            "kind": kind,
            "generation": number,
            "reason": reason,
        }
        fact = story.fact(t, "rebalance_events", inferred=False, **fields)
        counts = {"members_before": before, "members_after": after}
        story.answer("rebalances", t, fact, **fields, **counts)
    for queue_id, owner, span, ended_by in (
        (0, "ledger-1@10.0.0.21", (2.0, None), None),
        (1, "ledger-1@10.0.0.21", (2.0, None), None),
        (2, "ledger-2@10.0.0.22", (2.0, CRASH + 2.0), "EXPIRED"),
        (3, "ledger-2@10.0.0.22", (2.0, CRASH + 2.0), "EXPIRED"),
        (2, "ledger-1@10.0.0.21", (float(TAKEN_OVER), None), None),
        (3, "ledger-1@10.0.0.21", (float(TAKEN_OVER), None), None),
    ):
        fact = story.fact(
            span[0],
            "rebalance_events",
            group=cast.ledger,
            client_id=owner,
            kind="ASSIGNED",
            inferred=True,
            generation=9,
        )
        story.window(
            "ownership",
            f"{queue_id}/{owner}",
            span,
            fact=fact,
            group=cast.ledger,
            topic="payments",
            queue_id=queue_id,
            client_id=owner,
            inferred=True,
            last={"ended_by": ended_by},
        )


def _stalls(story: Story) -> None:
    cast = story.cast
    sizes = {"window_ms": 30_000, "slide_ms": 5_000}
    story.window(
        "stalled_windows",
        "slow",
        (SLOW_FROM + 20.0, float(SLOW_TO)),
        fact=story.fact(SLOW_FROM + 20, "client_windows", **_held(cast.shipping, 0, 180)),
        group=cast.shipping,
        topic="orders",
        queue_id=0,
        rule="SLOW",
        kind="UNDETERMINED",
        **sizes,
        committed_from=121_440,
        committed_to=121_560,
        lag_messages=230,
        time_lag_ms=28_000,
        reports=6,
        client_id="shipping-1@10.0.0.12",
        evidence="committed moved 120 in 30 s while 240 messages came; lag never shrank",
    )
    story.window(
        "stalled_windows",
        "stopped",
        (CRASH + 12.0, TAKEN_OVER + 6.0),
        fact=story.fact(CRASH + 12, "client_windows", **_held(cast.ledger, 3, 60)),
        group=cast.ledger,
        topic="payments",
        queue_id=3,
        rule="STOPPED",
        kind="DEAD_CONSUMER",
        **sizes,
        lag_messages=75,
        time_lag_ms=14_000,
        reports=0,
        client_id="ledger-2@10.0.0.22",
        evidence="no commit for 12 s; ledger-2 is gone and nobody pulls",
    )
    story.window(
        "stalled_windows",
        "frozen",
        (FROZEN + 12.0, None),
        fact=story.fact(FROZEN + 12, "client_windows", **_held(cast.shipping, 2, 128)),
        group=cast.shipping,
        topic="orders",
        queue_id=2,
        rule="STALLED",
        kind="FROZEN_HEAD",
        **sizes,
        lag_messages=127,
        time_lag_ms=15_900,
        reports=7,
        client_id="shipping-2@10.0.0.12",
        head_message_id=cast.message_id,
        head_since=at(FROZEN - 3.9),
        stack="at warehouse.reserve(warehouse.py:88)",
        evidence="7 commits in 30 s, offset unchanged, while the pulled mark rose by 240",
    )


def _held(group: str, queue_id: int, count: int) -> dict[str, Any]:
    return {
        "group": group,
        "topic": "orders",
        "queue_id": queue_id,
        "client_id": f"{group}-client",
        "held_count": count,
        "held_bytes": count * 1024,
        "locked": False,
        "dropped": False,
    }


def _duplicates(story: Story, queues: list[Queue]) -> None:
    cast = story.cast
    of_ledger = [queue for queue in queues if queue.group == cast.ledger]
    for queue in of_ledger[2:]:
        _crash_risk(story, queue)
    for queue in of_ledger:
        fact = story.fact(BACK, "lifecycle", kind="BOOT", clean=False, detail="after SIGKILL")
        restored, known = queue.committed(BACK), queue.committed(RESTART - 1)
        story.window(
            "duplicate_risk_windows",
            f"broker-{queue.queue_id}",
            (float(BACK), BACK + 6.0),
            fact=fact,
            **_place(queue),
            cause="BROKER_CRASH",
            basis="RESTART",
            outcome="POSSIBLE",
            from_offset=restored,
            to_offset=known,
            at_risk_messages=known - restored,
            redelivered_messages=0,
            evidence=f"the broker died when the group was at {known}; readers are given {restored}",
            last={"outcome": "PASSED", "evidence": "the group pulled nothing of the range again"},
        )
    frozen = next(queue for queue in queues if queue.role == "frozen")
    seen = FROZEN + 20.0
    fact = story.fact(seen, "client_windows", **_held(cast.shipping, 2, 1))
    head, pulled = frozen.committed(seen), frozen.pulled(seen)
    story.window(
        "duplicate_risk_windows",
        "held",
        (seen, None),
        fact=fact,
        **_place(frozen),
        cause="CONSUMER_CRASH",
        basis="EXPOSURE",
        outcome="POSSIBLE",
        client_id=frozen.owner,
        from_offset=head,
        to_offset=pulled,
        at_risk_messages=pulled - head,
        certain_messages=pulled - head - 1,
        uncertain_messages=1,
        redelivered_messages=0,
        evidence=f"commits stand still: a crash of {frozen.owner} now would repeat "
        f"{pulled - head - 1} finished messages behind the head",
    )


def _crash_risk(story: Story, queue: Queue) -> None:
    """What the lost member had pulled and not committed; its heir pulls all of it again."""
    left = CRASH + 2
    begin, end = queue.committed(left), queue.pulled(left)
    risk, certain = end - begin, end - begin - 4
    heir = queue.holder(TAKEN_OVER)
    fact = story.fact(
        TAKEN_OVER,
        "redeliveries",
        group=queue.group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        from_offset=begin,
        to_offset=end,
        client_id=heir,
        previous_client_id=queue.owner,
        broker_epoch_before=0,
        delivered_count=risk,
    )
    story.window(
        "duplicate_risk_windows",
        f"crash-{queue.queue_id}",
        (float(left), TAKEN_OVER + 1.0),
        fact=fact,
        **_place(queue),
        cause="CONSUMER_CRASH",
        basis="DEPARTURE",
        outcome="POSSIBLE",
        client_id=queue.owner,
        from_offset=begin,
        to_offset=end,
        at_risk_messages=risk,
        certain_messages=certain,
        uncertain_messages=4,
        certain_ranges=[{"from_offset": begin + 4, "to_offset": end}],
        redelivered_messages=0,
        evidence=f"{queue.owner} was lost with {risk} messages pulled and not committed.",
        last={
            "outcome": "CONFIRMED",
            "next_client_id": heir,
            "redelivered_from": begin,
            "redelivered_to": end,
            "redelivered_messages": risk,
            "evidence": f"{heir} pulled {risk} messages again from {begin}",
        },
    )


def _place(queue: Queue) -> dict[str, Any]:
    return {"group": queue.group, "topic": queue.topic, "queue_id": queue.queue_id}


def _poison(story: Story) -> None:
    cast = story.cast
    origin = {
        "message_id": cast.message_id,
        "origin_topic": "orders",
        "origin_queue_id": 1,
        "origin_offset": 123_311,
        "group": cast.billing,
    }
    story.fact(
        POISON - 11,
        "retry_dlq_flow",
        **origin,
        reconsume_times=1,
        step="SENT_BACK",
        delay_ms=10_000,
    )
    fact = story.fact(
        POISON,
        "retry_dlq_flow",
        **origin,
        reconsume_times=2,
        step="DEAD_LETTERED",
        reason=cast.reason,
    )
    story.answer(
        "dead_letters",
        POISON,
        fact,
        **origin,
        reconsume_times=2,
        reason=cast.reason,
        first_failed_at=at(POISON - 11),
    )


def _restored_offsets(story: Story) -> None:
    """The regress each ledger queue shows after the restart, with its cause."""
    back = [
        fact
        for fact in story.facts
        if fact.table == "consume_offsets" and fact.values["path"] == "RESTORE"
    ]
    for fact in back:
        values = fact.values
        story.answer(
            "offset_violations",
            fact.at_s,
            fact,
            group=values["group"],
            topic=values["topic"],
            queue_id=values["queue_id"],
            law="MONOTONIC",
            offset=values["offset"],
            previous_offset=values["previous_offset"],
            min_offset=values["min_offset"],
            max_offset=values["max_offset"],
            delta=values["previous_offset"] - values["offset"],
            cause="BROKER_RESTART",
            explained=True,
            path=values["path"],
        )


def _storage(story: Story) -> None:
    """A master in its second epoch with two slaves: one keeps up, the other hangs from HANG on;
    timers wait, most of them for the next hour.
    """
    cast, far = story.cast, "10.0.0.33:10912"
    for replica in (cast.replica, far):
        detail = f"slave {replica} of a SYNC_MASTER"
        story.fact(2, "lifecycle", kind="REPLICA_JOINED", address=replica, detail=detail)
    due = [40, 900, 0, 12, *[0] * 19, 6, *[0] * 24]
    waits = {"component": "TIMER", "action": "WAIT", "cause": "TIMER", **_COUNTED_NONE}
    story.fact(LENGTH_S - 12, "flush_checkpoints", **waits, written=965, due_by_hour=due)
    for at_s in range(10, LENGTH_S + 1, 10):
        written, is_down = 4_000_000 + 9_000 * at_s, RESTART <= at_s < BACK + 5
        if is_down:
            continue
        on_disk, near, hangs = written - 3_000, written - 1_200 * (at_s % 40 == 0), 4_000_000
        hangs = min(hangs + 9_000 * min(at_s, HANG), near)
        flush = {"component": "COMMIT_LOG", "action": "FLUSH", "cause": "TIMER", **_COUNTED}
        fact = story.fact(
            *(at_s - 1, "flush_checkpoints"),
            **{**flush, "written": written, "committed": written, "flushed": on_disk},
            store_time=at(at_s - 2),
        )
        if at_s % 60 == 0:
            made = {"component": "INDEX", "action": "FLUSH", "cause": "TIMER", **_COUNTED}
            story.fact(at_s - 1, "flush_checkpoints", **made, store_time=at(at_s - 20))
        story.answer(
            "flush_health",
            at_s,
            fact,
            kill_bytes=0,
            power_cut_bytes=3_000,
            power_cut_messages=3,
            power_cut_queues=2,
            flushes=18,
            flush_us_max=41_000,
        )
        behind_ms = max(0, at_s - HANG) * 1000
        slaves = [
            _slave(cast.replica, near, written, 0),
            _slave(far, hangs, written, behind_ms),
        ]
        story.answer(
            "replication_health",
            at_s,
            fact,
            mode="SYNC_MASTER",
            replicas=2,
            written=written,
            furthest_replica=cast.replica,
            loss_bytes=written - near,
            loss_messages=int(written > near),
            slowest_replica=far,
            behind_bytes=written - hangs,
            behind_ms=behind_ms,
            slaves=slaves,
            epoch=2,
        )


def _slave(replica: str, has: int, written: int, behind_ms: int) -> dict[str, Any]:
    lacks = {"behind_bytes": written - has, "behind_ms": behind_ms}
    return {"replica": replica, "replicated": has, **lacks}


def _checks(story: Story) -> None:
    """The results of one run: one warning does not hold, and says for which key."""
    run = "20260301T121455Z-demo"
    moment = at(895)
    base = {"observed_at": moment, "observed_date": moment.date(), "run_id": run}
    results = [
        (
            "offset_monotonicity",
            "offset_violations",
            "CRITICAL",
            0,
            4,
            "4 explained, 0 unexplained",
        ),
        ("bronze_offsets_monotonic", "consume_offsets", "CRITICAL", 0, 2_130, "12 keys, none fell"),
        ("committed_at_most_max", "consumer_lag", "CRITICAL", 0, 10_740, "largest excess 0"),
        ("seq_gapless", "emitter_health", "CRITICAL", 0, 180, "180 shipments, no gap"),
        ("seq_unique", "emitter_health", "CRITICAL", 0, 180, "180 shipments, no repeat"),
        ("group_state_keys_unique", "group_state", "WARNING", 0, 110, "110 keys, all different"),
        ("stalls_well_formed", "stalled_windows", "WARNING", 0, 5, "5 revisions"),
        ("offsets_known", "consumer_lag", "WARNING", 1, 13, "1 of 13 queues has no offset"),
    ]
    for name, table, severity, failed, checked, observed in results:
        story.gold.setdefault("dq_results", []).append(
            {
                **base,
                "suite": "gold" if table != "consume_offsets" else "bronze",
                "expectation": name,
                "table": table,
                "severity": severity,
                "success": failed == 0,
                "observed_value": observed,
                "failed_rows": failed,
                "checked_rows": checked,
                "table_version": 0,
                "started_at": moment,
                "seconds_ms": 12,
            }
        )
    story.gold.setdefault("dq_failures", []).append(
        {
            **base,
            "expectation": "offsets_known",
            "table": "consumer_lag",
            "row_key": f"{story.cast.ledger} %RETRY%{story.cast.ledger} broker-a queue 0",
            "detail": "committed unknown: NO_OFFSET",
        }
    )
