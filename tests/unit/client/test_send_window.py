"""Room for sends under way: bounded by number and bytes, given in order of arrival.

Feature rows: D1 (back-pressure).
"""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from engine.client.producer import SendWindow


async def test_who_gives_up_waiting_takes_no_room() -> None:
    window = SendWindow(1, 100)
    assert window.try_enter(10)
    second, third = (asyncio.ensure_future(window.enter(10)) for _ in range(2))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    window.leave(10)
    await third
    assert (window.count, window.held_bytes) == (1, 10)

    fourth, fifth = (asyncio.ensure_future(window.enter(10)) for _ in range(2))
    await asyncio.sleep(0)
    window.leave(10)  # It is the fourth's turn,
    fourth.cancel()  # who does not take it.
    await fifth
    assert (window.count, window.held_bytes) == (1, 10)


async def test_a_small_send_does_not_overtake_a_large_one_that_waits() -> None:
    window = SendWindow(10, 100)
    assert window.try_enter(60)
    large = asyncio.ensure_future(window.enter(50))
    await asyncio.sleep(0)
    assert not window.try_enter(1)
    window.leave(60)
    await large
    assert window.try_enter(1)


@given(
    st.lists(st.integers(1, 150), min_size=1, max_size=40),
    st.integers(1, 5),
    st.integers(1, 200),
)
async def test_limits_hold_and_everybody_gets_a_turn(
    sizes: list[int], count_max: int, bytes_max: int
) -> None:
    window = SendWindow(count_max, bytes_max)
    served: list[int] = []

    async def send(number: int, size_bytes: int) -> None:
        await window.enter(size_bytes)
        served.append(number)
        assert window.count <= count_max
        assert window.held_bytes <= bytes_max or window.count == 1
        for _ in range(size_bytes % 4):
            await asyncio.sleep(0)
        window.leave(size_bytes)

    await asyncio.gather(*(send(number, size) for number, size in enumerate(sizes)))
    assert served == list(range(len(sizes))), "in order of arrival"
    assert (window.count, window.held_bytes) == (0, 0)
