"""Topic attributes change by RocketMQ's rules, whole or not at all.

Feature rows: D2 (its switch per topic).
"""

from __future__ import annotations

import pytest

from engine.broker.topics.topics import changed_attributes
from engine.foundation.errors import RequestRefused

DEDUPLICATED = {"message.deduplication": "true"}


@pytest.mark.parametrize(
    ("current", "change", "after"),
    [
        (None, None, {}),
        (None, "", {}),
        (None, "+message.deduplication=true", DEDUPLICATED),
        (None, "+message.type=FIFO,+cleanup.policy=DELETE", {"message.type": "FIFO"}),
        ({}, "+message.deduplication=true", DEDUPLICATED),
        (DEDUPLICATED, "", DEDUPLICATED),
        (DEDUPLICATED, "-message.deduplication", {}),
        (DEDUPLICATED, "+message.deduplication=false", {"message.deduplication": "false"}),
    ],
)
def test_a_change_gives(
    current: dict[str, str] | None, change: str | None, after: dict[str, str]
) -> None:
    found = changed_attributes(current, change)
    assert {key: value for key, value in found.items() if key != "cleanup.policy"} == after


@pytest.mark.parametrize(
    ("current", "change", "rule"),
    [
        ({}, "message.type=FIFO", "add/alter attribute format is wrong"),
        ({}, "message.type", "delete attribute format is wrong"),
        (None, "-message.type", "only add attribute is supported while creating"),
        ({}, "-message.type", "attempt to delete a nonexistent key"),
        ({}, "+message.type=FIFO,+message.type=NORMAL", "alter duplication key"),
        ({}, "+no.such=1", "unsupported key: no.such; there are cleanup.policy"),
        ({}, "+message.deduplication=yes", r"value is not in set: \['true', 'false'\]"),
        ({}, "+cleanup.policy=DELETE", "unchangeable"),
        (None, "+cleanup.policy=COMPACTION", "not in set"),
    ],
)
def test_a_wrong_change_is_refused_with_its_rule(
    current: dict[str, str] | None, change: str, rule: str
) -> None:
    before = dict(current or {})
    with pytest.raises(RequestRefused, match=rule):
        changed_attributes(current, change)
    assert (current or {}) == before
