"""Words that the glossary bans become rarer in names, docstrings and comments.

What is left are names that others rely on: columns of tables and of stored state, keys of JSON,
`tell` of a file, and in the tests the same words of the product.
"""

from __future__ import annotations

import re
from collections import Counter

from tests.architecture.source_tree import CODE_FOLDERS, HERE, modules

BANNED = re.compile(r"(?<![a-zA-Z])(?:told|tell|tells|deed|deeds|desk|desks)(?![a-zA-Z])")
"""As a word, and as a part of a name: `last_reported`, `_tell`."""

# Room → how often it still says one of them. A number only falls: lower it with the words.
STILL: dict[str, int] = {
    "dashboards": 1,
    "engine/broker": 1,
    "engine/client": 4,
    "engine/foundation": 1,
    "engine/telemetry": 1,
    "experiment": 5,
    "pipelines/alerting": 19,
    "pipelines/cycles": 3,
    "pipelines/lake": 2,
    "pipelines/marts": 37,
    "pipelines/reading": 1,
    "pipelines/reports": 19,
    "pipelines/scheduler": 2,
    "pipelines/sentences": 4,
    "tests": 8,
    "tests/integration": 5,
    "tests/interop": 1,
    "tests/pipelines": 10,
    "tests/property": 2,
    "tests/unit": 7,
}


def room_of(name: str) -> str:
    """Two folders of the engine, of pipelines and of tests, one of any other."""
    *folders, _ = name.split("/")
    return "/".join(folders[: 2 if folders[0] in {"engine", "pipelines", "tests"} else 1])


def said() -> Counter[str]:
    """Room → how often its code says a banned word."""
    found: Counter[str] = Counter()
    for module in modules(*CODE_FOLDERS):
        if not module.name.startswith(HERE):
            found[room_of(module.name)] += len(BANNED.findall(module.text))
    return +found


def test_no_room_says_a_word_more_often_that_the_glossary_bans() -> None:
    more = {
        room: f"{count}, {STILL.get(room, 0)} at most: docs/glossary.md has the words to use"
        for room, count in said().items()
        if count > STILL.get(room, 0)
    }
    assert not more


def test_a_room_that_says_it_less_often_has_its_number_lowered() -> None:
    found = said()
    lower = {room: found[room] for room, count in STILL.items() if found[room] < count}
    assert not lower, "write these numbers into STILL"
