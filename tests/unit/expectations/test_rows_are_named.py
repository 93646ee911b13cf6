"""A row that breaks a check is named so that no other row has the same name."""

from __future__ import annotations

import polars as pl

from expectations.violations import sample


def test_equal_rows_of_two_clusters_have_two_names() -> None:
    place = {"broker": "broker-a", "group": "orders", "topic": "orders", "queue_id": 0, "seq": 7}
    rows = pl.DataFrame(
        [
            {"cluster": cluster, **place, "emitter": f"{cluster}/broker-a/0"}
            for cluster in ("east", "west")
        ]
    )
    names = [failure.row_key for failure in sample(rows, ())]
    assert names == [
        "cluster=east, broker=broker-a, group=orders, topic=orders, queue_id=0",
        "cluster=west, broker=broker-a, group=orders, topic=orders, queue_id=0",
    ]
