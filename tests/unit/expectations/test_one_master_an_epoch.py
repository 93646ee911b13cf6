"""Row C9: two nodes of a broker that lead in one epoch are found."""

from __future__ import annotations

from typing import Any

import polars as pl

from expectations.suites.gold_against_facts import masters_of_one_epoch


def found(*rows: tuple[str, str, str | None, int | None]) -> list[tuple[str, int]]:
    """(emitter, term) of rows that break the law; each is (broker, node, role, term)."""
    columns: dict[str, list[Any]] = {
        "cluster": ["c" for _ in rows],
        "broker": [broker for broker, *_ in rows],
        "emitter": [f"c/{broker}/{node}" for broker, node, *_ in rows],
        "kind": ["ROLE_CHANGE" for _ in rows],
        "role": [role for *_, role, _ in rows],
        "term": [term for *_, term in rows],
    }
    broken = masters_of_one_epoch({"lifecycle": pl.DataFrame(columns)})
    return broken.select("emitter", "term").rows()


def test_two_masters_of_one_epoch_are_found_and_no_other_change_is() -> None:
    sound = [
        *(("a", "0", "MASTER", 3), ("a", "0", "MASTER", 3), ("a", "7", "SLAVE", 3)),
        *(("a", "7", "MASTER", 4), ("b", "0", "MASTER", 3), ("a", "9", None, None)),
    ]
    assert found(*sound) == []
    never_had_one = [("a", "0", "MASTER", 0), ("a", "7", "MASTER", 0)]
    assert found(*never_had_one) == []
    assert found(*sound, ("a", "9", "MASTER", 4)) == [("c/a/7", 4), ("c/a/9", 4)]
