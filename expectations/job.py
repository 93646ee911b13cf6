"""Spark job for a check run, with one task per unit of work.

Invariant: the driver receives counts and samples, never rows. Absent on purpose: what a law means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from expectations.work import Order, UnitDone, carry_out
from pipelines.cycles import task_failures

_DONE: Final = pa.schema([("done", pa.string())])

Job = Callable[[Order], list[UnitDone]]
"""Carries out an order."""


def on_spark(spark: SparkSession) -> Job:
    """Orders are carried out by the executors of a session."""
    return partial(_run, spark)


def _run(spark: SparkSession, order: Order) -> list[UnitDone]:
    units = order.units
    if not units:
        return []
    tasks = spark.range(0, len(units), 1, len(units))
    results = tasks.mapInArrow(partial(_carry_out, order), "done string").toArrow()
    done = [UnitDone.from_json(text) for text in task_failures.done(results["done"].to_pylist())]
    assert sorted(one.unit for one in done) == sorted(units), "every unit answers once"
    return done


def _carry_out(order: Order, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    units = order.units
    for batch in batches:
        numbers = batch.column("id").to_pylist()
        for text in task_failures.reported(partial(_each, order, [units[one] for one in numbers])):
            yield pa.record_batch([[text]], schema=_DONE)


def _each(order: Order, units: Sequence[str]) -> Iterator[str]:
    for unit in units:
        yield carry_out(order, unit).as_json()
