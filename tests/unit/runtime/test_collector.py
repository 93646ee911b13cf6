"""Python's collector in a process that serves: each look is at what is new, so that none holds the
event loop; circles still go while the process is small, and when a crowd has gone.

Each scene is a process of its own: the collector is the process's.
"""

from __future__ import annotations

import subprocess
import sys

SCENE = """
import asyncio
import gc
from engine.runtime import memory
from engine.runtime.memory import collect_what_is_new, give_back_memory, look_often
memory.LOOK_EACH_S = 0
memory.WHOLE_LOOK_EACH = 50

class Node:
    pass

def circle():
    node = Node()
    node.self = node
    return node

looked_at = []
def count(phase, info):
    if phase == "start":
        looked_at.append(sum(len(gc.get_objects(generation=one)) for one in range(3)))

def grow(objects):
    return [Node() for _ in range(objects)]

async def look(times):
    looking = asyncio.create_task(look_often())
    for _ in range(3 * times):
        await asyncio.sleep(0)
    looking.cancel()

gc.callbacks.append(count)
collect_what_is_new()
looked_at.clear()
"""


def said(story: str) -> list[int]:
    """The numbers that the scene prints."""
    done = subprocess.run(
        [sys.executable, "-c", SCENE + story], capture_output=True, text=True, check=True
    )
    return [int(word) for word in done.stdout.split()]


def test_no_look_is_at_more_than_is_new_however_much_there_is() -> None:
    longest, frozen = said("kept = grow(600_000); print(max(looked_at), gc.get_freeze_count())")
    assert frozen > 500_000
    assert longest < 4_000, "what is new since the last look, and no more"


def test_a_table_that_grows_is_gone_through_once() -> None:
    story = """
import sys
def entries_looked_at(phase, info):
    if phase == "start":
        seen = [one for gen in range(3) for one in gc.get_objects(generation=gen)]
        largest.append(max((len(one) for one in seen if type(one) is dict), default=0))
largest = []
gc.callbacks.insert(0, entries_looked_at)
table = {}
for number in range(300_000):
    table[number] = (number, [])
print(max(largest), len(largest))
"""
    most, looks = said(story)
    assert looks > 20
    assert most < 4_000


def test_a_small_process_looks_at_everything_again_and_lets_circles_go() -> None:
    story = """
import weakref
one = circle()
seen = weakref.ref(one)
gc.collect()
del one
gc.collect()
print(int(seen() is not None))
asyncio.run(look(60))
print(int(seen() is not None))
"""
    assert said(story) == [1, 0], "put out of sight first, found later"


def test_a_table_that_is_replaced_entry_by_entry_is_looked_at_some_entries_at_a_time() -> None:
    """As many objects go as are made: the collector itself would not look before the end."""
    story = """
async def replace():
    looking = asyncio.create_task(look_often())
    before, now = grow(100_000), []
    looked_at.clear()
    while before:
        for _ in range(1_000):
            before.pop()
            now.append(Node())
        await asyncio.sleep(0)
    kept = grow(4_000)
    print(max(looked_at))
asyncio.run(replace())
"""
    (most,) = said(story)
    assert most < 10_000


def test_a_large_process_is_not_gone_through_to_count_what_is_out_of_sight() -> None:
    story = """
counted = []
ask = gc.get_freeze_count
gc.get_freeze_count = lambda: counted.append(ask()) or counted[-1]
asyncio.run(look(120))
small = len(counted)
kept = grow(1_000_000)
counted.clear()
asyncio.run(look(120))
print(small, len(counted))
"""
    small, large = said(story)
    assert small > 0
    assert large == 0


def test_memory_given_back_is_that_of_circles_too_in_a_process_of_any_size() -> None:
    story = """
import weakref
kept = grow(300_000)
one = circle()
seen = weakref.ref(one)
gc.collect()
del one
asyncio.run(look(60))
print(int(seen() is not None))
give_back_memory()
print(int(seen() is not None))
"""
    assert said(story) == [1, 0]
