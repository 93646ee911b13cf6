"""Measures filtering cost and the false-positive rate of bit tests for multiple tags.

    python -m bench.filter

False positives: share of messages that carry none of the wanted tags and pass the broker's test.
Tags are names such as `tag-17`; a run is the same each time. Times are the least of several rounds.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from math import comb
from random import Random
from typing import Any, Final

from engine.foundation.observing import SilentObserver
from engine.protocol.hashes import tags_code
from engine.protocol.properties import decode_properties
from engine.protocol.sql92 import compile_selector
from engine.protocol.tag_bits import TAG_BITS, WORD_BITS, tag_mask, tag_test, tags_word
from engine.runtime import system_runtime
from engine.store import MessageDraft, MessageStore, StoreConfig

ROUNDS: Final = 5
MESSAGES: Final = 200_000
TESTS: Final = 500
STORED: Final = 8_000
CARRIED: Final = (1, 2, 3, 5, 8, 12)
WANTED: Final = (1, 3, 10)
SELECTOR: Final = "n BETWEEN 100 AND 200 AND color = 'red'"


def false_positives(carried: int, wanted: int) -> float:
    """Share of messages with `carried` other tags that pass a test for `wanted` tags."""
    random = Random(1)
    masks = [tag_mask(f"tag-{number}") for number in range(1000)]
    passed = 0
    for turn in range(TESTS):
        test = tag_test([f"wanted-{turn}-{number}" for number in range(wanted)], [])
        for _ in range(MESSAGES // TESTS):
            word = tags_word("")
            for number in random.sample(range(1000), carried):
                word |= masks[number]
            passed += test(word)
    return passed / MESSAGES


def expected(carried: int, wanted: int) -> float:
    """The same by calculation: how likely are all bits of a wanted tag among those carried?"""
    sets = comb(WORD_BITS, TAG_BITS)
    one = sum(
        (-1) ** missed
        * comb(TAG_BITS, missed)
        * (comb(WORD_BITS - missed, TAG_BITS) / sets) ** carried
        for missed in range(TAG_BITS + 1)
    )
    return float(1 - (1 - one) ** wanted)


async def scan_us(folder: str, sys_flag: int, **tests: Any) -> float:
    """µs a message that a pull passes over: none of STORED messages is wanted."""
    store = await MessageStore.open(system_runtime(), StoreConfig(root=folder), SilentObserver())
    drafts = [
        MessageDraft(
            topic="paint",
            queue_id=0,
            body=b"x" * 1024,
            properties=f"n\x01{number}\x02color\x01blue\x02TAGS\x01tag-{number % 50}\x02",
            born_timestamp_ms=1,
            born_host="127.0.0.1:1",
            store_host="127.0.0.1:2",
            sys_flag=sys_flag,
        )
        for number in range(STORED)
    ]
    for draft in drafts:
        store.put(draft)
    await store.close()  # All is in the consume queue now.
    store = await MessageStore.open(system_runtime(), StoreConfig(root=folder), SilentObserver())
    least = float("inf")
    for _ in range(ROUNDS):
        began, offset = time.perf_counter_ns(), 0
        while offset < STORED:
            found = store.get("paint", 0, offset, max_count=32, max_bytes=1 << 20, **tests)
            assert not found.count, "nothing is wanted"
            offset = found.next_begin_offset
        least = min(least, (time.perf_counter_ns() - began) / 1000 / STORED)
    await store.close()
    return least


def print_tables() -> None:
    """Both tables on standard output."""
    print(f"false positives, {TAG_BITS} of {WORD_BITS} bits a tag: measured (expected)")
    print(f"{'tags a message':<16}" + "".join(f"{f'{n} wanted':>24}" for n in WANTED))
    for carried in CARRIED:
        cells = [
            f"{false_positives(carried, wanted):.4%} ({expected(carried, wanted):.4%})"
            for wanted in WANTED
        ]
        print(f"{carried:<16}" + "".join(f"{cell:>24}" for cell in cells))
    selector = compile_selector(SELECTOR)
    by_tag = tag_test(["wanted"], [tags_code("wanted")])
    by_sql = lambda properties: selector.matches(decode_properties(properties.decode()))  # noqa: E731
    cases: tuple[tuple[str, int, dict[str, Any]], ...] = (
        ("by hash", 0, {"wanted": by_tag}),
        ("by bits", 2, {"wanted": by_tag}),
        (f"by {SELECTOR}", 0, {"matches": by_sql}),
    )
    print(f"\nleast of {ROUNDS} rounds:")
    for name, sys_flag, tests in cases:
        with tempfile.TemporaryDirectory() as folder:
            figure = asyncio.run(scan_us(folder, sys_flag, **tests))
        print(f"a message passed over, {name:<50} {figure:>8.3f} µs")


if __name__ == "__main__":
    print_tables()
