"""Records when a queue ends for a group, after which its earlier rows no longer apply.

Place in the walk: judged rows → gold ended_queues, which readers hold against the newest rows of
consumer_lag. A queue ends with its group or its topic, and when a complete snapshot leaves it out;
what comes behind that under the same name is another life, with rows of a higher seq.

Invariant: a life ends once. Absent on purpose: queues of brokers that have fallen silent; of those
nothing is known, and that is not an end.
"""

from __future__ import annotations

from typing import Final

from pipelines.marts.columns import QUEUE_AT, STAMP, as_declared
from pipelines.marts.judging.queues import NAME as JUDGED_QUEUES
from pipelines.marts.mart import Given, GoldTable, Made, mart

ENDED_QUEUES: Final = GoldTable(
    "ended_queues",
    "queue of a group that is not there any more, and its life: `seq` is the last row of it",
    (*QUEUE_AT, *STAMP),
    ("cluster", "broker", "group", "topic", "queue_id", "observed_at", "seq"),
    on_ticks="true",
)


def ended_queues(given: Given) -> Made:
    """One row per queue of a group that has ended."""
    judged = given.facts[JUDGED_QUEUES]
    ended = judged.filter(judged["ends"])
    if not ended.num_rows:
        return Made(MART.none)
    columns = dict(zip(ended.schema.names, ended.columns, strict=True))
    columns["observed_us"] = ended["tick_us"]
    return Made(as_declared(columns, ENDED_QUEUES))


MART = mart(ENDED_QUEUES, ended_queues, reads=(JUDGED_QUEUES,))
