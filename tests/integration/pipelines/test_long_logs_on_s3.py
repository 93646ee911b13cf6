"""A table's log in an object store may be long: a commit asks as much of the store as in a young
one, and so does who opens it, follows it or reads its tail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import obstore
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from engine.telemetry.shipper.short_logs import Manner
from pipelines.lake.lake import Lake
from pipelines.lake.small_files import object_store
from pipelines.lake.table_writes import HOOKS, ShortLog
from pipelines.lake.tail import newest_place, read_tail
from tests.integration.pipelines.s3_server import BUCKET, requests_so_far, s3_server

pytestmark = pytest.mark.timeout(300)

LONG = 1_230
"""Entries: more than a store names at once; it takes a minute to put them there."""


@pytest.fixture(scope="module")
def s3() -> Iterator[Mapping[str, str]]:
    with s3_server() as options, pytest.MonkeyPatch.context() as patch:
        for name, text in options.items():
            patch.setenv(name, text)
        yield options


def with_entries(name: str, entries: int) -> tuple[Lake, str]:
    """A table whose checkpoint stands behind so many commits without files."""
    lake = Lake.at(f"s3://{BUCKET}/{name}")
    address = lake.gold("table")
    write_deltalake(address, pa.table({"a": [1]}), storage_options=lake.storage_options)
    store = object_store(lake)
    for number in range(1, entries):
        key = f"gold/table/_delta_log/{number:020d}.json"
        obstore.put(store, key, b'{"commitInfo":{"timestamp":1,"operation":"WRITE"}}\n')
    lake.table(address).create_checkpoint()
    return lake, address


def asked(s3: Mapping[str, str], act: Callable[[], object]) -> int:
    before = requests_so_far(s3)
    act()
    return requests_so_far(s3) - before


def costs(s3: Mapping[str, str], entries: int) -> dict[str, int]:
    lake, address = with_entries(f"lake-{entries}", entries)
    place = newest_place(lake, address)
    handle = lake.table(address)

    def append(to: DeltaTable) -> None:
        rows = pa.table({"a": [2]})
        write_deltalake(to, rows, mode="append", post_commithook_properties=HOOKS)

    return {
        "exists": asked(s3, lambda: lake.exists(address)),
        "open": asked(s3, lambda: lake.table(address)),
        "append": asked(s3, lambda: append(handle)),
        "follow": asked(s3, handle.update_incremental),
        "tail": asked(s3, lambda: read_tail(lake, address, place)),
    }


@pytest.mark.parametrize("entries", [150, pytest.param(LONG, marks=pytest.mark.slow)])
def test_a_long_log_costs_no_request_more_than_a_short_one(
    s3: Mapping[str, str], entries: int
) -> None:
    assert costs(s3, entries) == costs(s3, 20)


def test_delta_rs_cleans_a_log_in_a_store_now_and_then(s3: Mapping[str, str]) -> None:
    lake, address = with_entries("cleaned", 5)
    log = ShortLog(address, lake.storage_options, manner=Manner(store_tidy_each=3))
    asked_each = []
    for _ in range(6):
        log.committed(4)
        asked_each.append(asked(s3, log.shorten) > 0)
    assert asked_each == [False, False, True] * 2
