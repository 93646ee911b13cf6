"""Rows go to the lake's tables by one door."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from engine.foundation.errors import LakeError
from pipelines.lake.lake import Lake
from pipelines.lake.table_writes import append

ROWS = pa.table({"emitter": pa.array(["one"], pa.string())})


def test_an_append_leaves_every_entry_of_the_log_to_its_writer(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    address = lake.state("places")
    DeltaTable.create(
        address,
        Schema.from_arrow(ROWS.schema),
        configuration={
            "delta.checkpointInterval": "2",
            "delta.logRetentionDuration": "interval 0 seconds",
        },
    )

    for _ in range(5):
        append(lake, address, ROWS)

    entries = sorted(int(entry.stem) for entry in Path(address, "_delta_log").glob("*[0-9].json"))
    assert entries == [0, 1, 2, 3, 4, 5]


def test_a_table_that_refuses_rows_is_named(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    address = lake.state("places")
    append(lake, address, ROWS)

    with pytest.raises(LakeError, match=r"state/places takes no row \("):
        append(lake, address, pa.table({"other": pa.array([1], pa.int64())}))


def test_a_table_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    address = lake.state("places")
    append(lake, address, ROWS, transaction=("places", 1), is_new=True)

    with pytest.raises(LakeError, match=r"state/places is there already \("):
        append(lake, address, ROWS, is_new=True, refusal="is there already")

    assert lake.table(address).transaction_version("places") == 1
