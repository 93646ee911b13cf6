"""Epochs say which master wrote what of a log, and go with its bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.foundation.errors import CorruptRecord
from engine.store.epochs import Epoch, entries_in, last_common
from tests.store_support import abandon, draft, open_store, small_config


async def test_epochs_outlive_the_process_and_go_with_the_bytes_that_are_cut(
    tmp_path: Path,
) -> None:
    config = small_config(tmp_path)
    store = await open_store(config)
    await store.epochs.begin(1, 0, log_begin=0)
    first_end = store.put(draft(b"of epoch 1")).end_offset
    await store.epochs.begin(2, first_end, log_begin=0)
    second_end = store.put(draft(b"of epoch 2")).end_offset
    await store.epochs.begin(5, second_end, log_begin=0)
    store.put(draft(b"of epoch 5"))
    await store.flush()
    await store.truncate(first_end)
    assert store.epochs.entries == (Epoch(1, 0), Epoch(2, first_end))
    assert store.epochs.number_before(first_end) == 1, "epoch 2 has no byte any more"
    assert not store.epochs.leads, "what it led was cut"
    await abandon(store)
    again = await open_store(config)
    assert again.epochs.entries == (Epoch(1, 0), Epoch(2, first_end))
    assert again.epochs.highest == 5, "no number is given twice"
    await again.close()


async def test_a_start_forgets_epochs_that_begin_behind_the_log(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    store = await open_store(config)
    end = store.put(draft(b"all that is left")).end_offset
    await store.epochs.begin(1, 0, log_begin=0)
    await store.epochs.begin(2, end + 400, log_begin=0)
    await abandon(store)
    for _ in range(2):
        again = await open_store(config)
        assert again.epochs.entries == (Epoch(1, 0),)
        assert not again.epochs.leads
        again.put(draft(b"written by another" * 30))
        await abandon(again)


async def test_an_epoch_without_a_byte_gives_way_to_the_next(tmp_path: Path) -> None:
    store = await open_store(small_config(tmp_path))
    await store.epochs.begin(1, 0, log_begin=0)
    await store.epochs.begin(2, 0, log_begin=0)
    assert store.epochs.entries == (Epoch(2, 0),)
    await store.epochs.begin(3, 100, log_begin=0)
    await store.epochs.begin(4, 200, log_begin=100)
    assert store.epochs.entries == (Epoch(3, 100), Epoch(4, 200)), "no byte of 2 is left"
    await store.close()


async def test_a_follower_has_its_masters_list_and_leads_no_more(tmp_path: Path) -> None:
    store = await open_store(small_config(tmp_path))
    await store.epochs.begin(9, 0, log_begin=0)
    await store.epochs.take((Epoch(1, 0), Epoch(4, 700)), 500)
    assert store.epochs.entries == (Epoch(1, 0), Epoch(4, 700))
    assert (store.epochs.last.number, store.epochs.number_before(500)) == (4, 1)
    assert (store.epochs.highest, store.epochs.leads) == (9, False)
    await store.epochs.take((), 500)
    assert store.epochs.entries == (Epoch(1, 0),), "RocketMQ's master names no epochs"
    await store.close()


async def test_a_list_that_nobody_can_read_ends_the_start(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    store = await open_store(config)
    await store.epochs.begin(1, 0, log_begin=0)
    await store.close()
    for path in Path(config.tables_folder).glob("epochs.json*"):
        path.write_bytes(b"{")
    with pytest.raises(CorruptRecord, match=r"epochs\.json"):
        await open_store(config)


@pytest.mark.parametrize(
    "listed",
    [
        None,
        [{"epoch": 1}],
        [{"epoch": 2, "startOffset": 0}, {"epoch": 1, "startOffset": 9}],
        [{"epoch": 1, "startOffset": 9}, {"epoch": 2, "startOffset": 8}],
        [{"epoch": True, "startOffset": 8}],
        [{"epoch": number, "startOffset": number} for number in range(2000)],
    ],
)
def test_what_is_no_list_of_epochs_is_refused(listed: object) -> None:
    with pytest.raises(CorruptRecord):
        entries_in(listed)


@given(st.data())
def test_the_last_common_byte_is_where_two_histories_part(data: st.DataObject) -> None:
    """One log is written by masters in turn; another copied it up to some byte, then others wrote
    both.
    """
    gaps = st.lists(st.integers(0, 300), min_size=1, max_size=5)
    begins = [0]
    for gap in data.draw(gaps):
        begins.append(begins[-1] + gap)
    common = [Epoch(number + 1, begin) for number, begin in enumerate(begins[:-1])]
    end = begins[-1]
    parted = data.draw(st.integers(0, end))
    own_end = end + data.draw(st.integers(0, 300))
    other_end = parted + data.draw(st.integers(1, 300))
    other = [one for one in common if one.begin < parted] + [Epoch(50, parted)]
    expected = min(parted, own_end)
    assert last_common(common, own_end, other, other_end) == expected
    assert last_common(other, other_end, common, own_end) == expected
