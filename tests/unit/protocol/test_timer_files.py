"""The files of RocketMQ's timers: what a real wheel and log wrote is what ours write and read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.foundation.errors import CorruptRecord
from engine.protocol.timer_files import (
    CheckPoint,
    Slot,
    TimerFiles,
    Unit,
    java_hash,
    slots_in,
    units_of,
    waiting_in,
)

CASES = json.loads((Path(__file__).parents[2] / "cases" / "timer_files.json").read_text())
SLOTS, FILE_BYTES, AT_MS = 20, 512, 1_700_000_000_000
LOG = {
    int(name): bytes.fromhex(one["hex"]).ljust(one["size"], b"\0")  # Zeros at the end are left out.
    for name, one in CASES["timerlog_files"].items()
}


def test_a_wheel_is_byte_for_byte_that_of_rocketmq() -> None:
    files = TimerFiles(slots=SLOTS)
    for one in CASES["wheel_ops"]:
        files.put(Slot(one["timeMs"] // 1000, one["firstPos"], one["lastPos"], one["num"]))
    wheel = bytearray(files.wheel_bytes)
    positions = []
    for position, data in files.wheel():
        positions.append(position // 32)
        wheel[position : position + len(data)] = data
    assert wheel.hex() == CASES["wheel_file_hex"]
    assert positions == [one["slotIndex"] for one in CASES["wheel_ops"]]


def test_a_wheel_of_rocketmq_is_read() -> None:
    assert slots_in(bytes.fromhex(CASES["wheel_file_hex"])) == [
        Slot(one["timeMs"] // 1000, one["firstPos"], one["lastPos"], one["num"])
        for one in CASES["wheel_ops"]
    ]
    with pytest.raises(CorruptRecord, match="a timer wheel of 33 bytes"):
        slots_in(bytes(33))


def test_a_log_is_byte_for_byte_that_of_rocketmq() -> None:
    files = TimerFiles(slots=SLOTS, file_bytes=FILE_BYTES)
    topic = java_hash("TopicA")
    for one in CASES["timerlog_appends"]:
        unit = Unit(one["prevPos"], 1, AT_MS, 5000, one["offsetPy"], one["sizePy"], topic)
        assert files.append(unit) == one["pos"]
    written = {int(name): data.ljust(FILE_BYTES, b"\0") for name, data in files.log()}
    assert written == LOG


def test_a_log_of_rocketmq_is_read() -> None:
    slot = Slot((AT_MS + 5000) // 1000, 0, CASES["timerlog_appends"][-1]["pos"], 12)
    read = units_of(slot, LOG, FILE_BYTES)
    assert [(one.before, one.log_offset, one.size_bytes) for one in read] == [
        (one["prevPos"], one["offsetPy"], one["sizePy"]) for one in CASES["timerlog_appends"]
    ]


def test_a_file_ends_where_no_blank_tail_would_fit_behind_a_unit() -> None:
    for file_bytes, places in ((119, [0, 119]), (120, [0, 52])):
        files = TimerFiles(slots=SLOTS, file_bytes=file_bytes)
        assert [files.append(Unit(-1, 1, AT_MS, 1000, n, 100, 0)) for n in (0, 1)] == places


def test_units_of_one_slot_are_read_in_the_order_in_which_they_were_added() -> None:
    files = TimerFiles(slots=SLOTS, file_bytes=FILE_BYTES)
    for number in range(12):
        files.add(Unit(-1, 1, AT_MS, 1000, number, 100, 0))
    (slot,) = files._slots.values()
    log = {int(name): data for name, data in files.log()}
    assert slot.timers == 12
    assert [unit.log_offset for unit in units_of(slot, log, FILE_BYTES)] == list(range(12))


def test_slots_that_have_fired_do_not_wait_and_chains_end_with_their_second() -> None:
    files = TimerFiles(slots=SLOTS, file_bytes=FILE_BYTES)
    for number, delay_ms in enumerate((1000, 2000, 1000, 21_000)):
        files.add(Unit(-1, 1, AT_MS, delay_ms, number, 100, 0))
    slots = [Slot._make(slot) for slot in files._slots.values()]
    log = {int(name): data for name, data in files.log()}

    def waiting(delivered_ms: int) -> list[int]:
        check = CheckPoint(delivered_ms, 0, 0, 0)
        return [unit.log_offset for unit in waiting_in(slots, log, check, FILE_BYTES)]

    assert waiting(AT_MS) == [1, 3], "the slot of the first has been taken by that of the last"
    assert waiting(AT_MS + 3000) == [3]


def test_a_chain_that_leads_nowhere_is_damage() -> None:
    with pytest.raises(CorruptRecord, match="no unit at 9999"):
        units_of(Slot(1, 0, 9999, 1), LOG, FILE_BYTES)
    with pytest.raises(CorruptRecord, match="damaged at 4"):
        units_of(Slot(1, 0, 4, 1), LOG, FILE_BYTES)


def test_a_check_point_is_read_as_it_was_written() -> None:
    check = CheckPoint(AT_MS, 1, 2, 3, 4, 5, 6)
    assert CheckPoint.from_bytes(check.to_bytes() + bytes(4040)) == check
    assert len(check.to_bytes()) == 56
