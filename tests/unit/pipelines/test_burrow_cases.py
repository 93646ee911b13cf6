"""Every case of Burrow's rules, ours and Burrow's own answers: each field is reproduced."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.rules.burrow.cases import CaseResult, run_cases
from pipelines.rules.case_fields import CaseFileError, parse
from tests.unit.pipelines.foreign_cases import at_hand

CASES = Path(__file__).parents[2] / "cases"
DIFFERENTIAL = CASES / "burrow_differential.json"
OWN = CASES / "burrow_rules.json"
FOREIGN = at_hand("burrow_cases.json")


def run(path: Path) -> list[CaseResult]:
    return list(run_cases(parse(path.read_bytes(), name=path.name)))


@pytest.mark.parametrize(
    ("path", "kinds"),
    [
        (
            DIFFERENTIAL,
            {
                "partition_cases": 100,
                "group_cases": 20,
                "storage_ring_cases": 20,
                "weakness_probes": 8,
                "notifier_probes[": 4,
            },
        ),
        (
            OWN,
            {
                "partition_cases": 21,
                "weakness_probes": 9,
                "group_cases": 24,
                "notifier_cases": 6,
                "notifier_probes": 3,
            },
        ),
    ],
    ids=["what Burrow's code answered", "written by hand"],
)
def test_each_case_is_answered_as_burrow_answers_it(path: Path, kinds: dict[str, int]) -> None:
    results = run(path)
    assert [one for one in results if one.differences] == []
    assert Counter(one.name.split(" ")[0].rstrip("0123]") for one in results) == kinds


if FOREIGN is not None:

    def test_burrow_s_own_tests_are_answered_as_burrow_answers_them() -> None:
        results = run(FOREIGN)
        assert [one for one in results if one.differences] == []
        assert len(results) == 52


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Path of each plain value below an `expected` (or `sent`), notes aside."""
    if isinstance(value, dict):
        for name, member in value.items():
            if name != "note":
                yield from leaves(member, (*path, name))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from leaves(member, (*path, index))
    else:
        yield path


def spoilt(value: Any) -> Any:
    """Another value of the same kind."""
    if value is None:
        return 12_345
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return {"OK": "STALL", "open": "close"}.get(value, "OK" if value.isupper() else "open")
    return value + 1


def changed(document: Any, path: tuple[Any, ...]) -> Any:
    """A copy with the value at `path` spoilt."""
    copy = json.loads(json.dumps(document))
    holder = copy
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = spoilt(holder[path[-1]])
    return copy


@pytest.mark.parametrize("path", [DIFFERENTIAL, OWN], ids=["differential", "own"])
def test_every_field_that_is_expected_is_compared(path: Path) -> None:
    """Any of them spoilt makes its case differ: none is passed over in silence."""
    document = json.loads(path.read_text(encoding="utf-8"))
    expectations = [
        place for place in leaves(document) if any(step in ("expected", "sent") for step in place)
    ]
    assert len(expectations) > 200
    for place in expectations[:: max(1, len(expectations) // 50)]:
        text = json.dumps(changed(document, place)).encode()
        results = list(run_cases(parse(text, name="spoilt")))
        assert sum(1 for one in results if one.differences) == 1, place


def test_a_difference_names_the_field_and_both_values() -> None:
    document = json.loads(OWN.read_text(encoding="utf-8"))
    document["partition_cases"][0]["expected"]["status"] = "STOP"
    first = next(run_cases(parse(json.dumps(document).encode(), name="mine.json")))
    assert first.differences == (
        "mine.json.partition_cases[0].expected.status: expected 'STOP', got 'OK'",
    )
    assert str(first).split("  ")[-2].endswith("DIFFERENT")


@pytest.mark.parametrize("entries", [0, 9, 11], ids=["none", "one fewer", "one more"])
def test_a_case_that_expects_more_than_there_is_differs(entries: int) -> None:
    """Or less: a ring of ten commits is expected to hold some other number of them."""
    document = json.loads(DIFFERENTIAL.read_text(encoding="utf-8"))
    ring = document["storage_ring_cases"]
    case = next(one for one in ring["cases"] if len(one["expected"]) == 10)
    case["expected"] = (case["expected"] * 2)[:entries]
    ring["cases"] = [case]
    text = json.dumps({"storage_ring_cases": ring}).encode()
    (result,) = run_cases(parse(text, name="mine.json"))
    assert f"expected {entries} entries, got 10" in result.differences[0]


PARTITION: dict[str, Any] = {
    "id": 1,
    "allowed_lag": 0,
    "broker_offsets": [9],
    "current_lag": 0,
    "now_s": 5,
    "offsets": [{"offset": 9, "order": 1, "timestamp_ms": 0, "lag": 0}],
    "expected": {"status": "OK"},
}
GROUP: dict[str, Any] = {
    "id": 1,
    "intervals": 3,
    "min_distance_s": 0,
    "minimum_complete": 0,
    "allowed_lag": 0,
    "topic_partition_count": 1,
    "events": [],
    "expected": {"status": "NOTFOUND"},
}


def partition(**changes: Any) -> dict[str, Any]:
    return {"partition_cases": [PARTITION | changes]}


def group(**changes: Any) -> dict[str, Any]:
    return {"group_cases": [GROUP | changes]}


def commit(**changes: Any) -> dict[str, Any]:
    return partition(offsets=[PARTITION["offsets"][0] | changes])


WRONG: dict[str, tuple[Any, str]] = {
    "an unknown kind": ({"verdicts": []}, "'verdicts' is not a kind of case"),
    "no case": ({"source": "me"}, "holds no case"),
    "an empty kind": ({"partition_cases": []}, "holds no case"),
    "a list": ([], "holds [], not an object"),
    "a case that is no object": ({"partition_cases": [3]}, "partition_cases[0]: is 3"),
    "no id": (
        {"partition_cases": [{k: v for k, v in PARTITION.items() if k != "id"}]},
        "partition_cases[0]: 'id' is missing",
    ),
    "no end offsets": (
        {"partition_cases": [{k: v for k, v in PARTITION.items() if k != "broker_offsets"}]},
        "'broker_offsets' is missing",
    ),
    "a field nobody looks at": (partition(lag=3), "'lag' is not a field that is known here"),
    "an expectation nobody compares": (
        partition(expected={"status": "OK", "state": "x"}),
        "'state' is not a field that is compared",
    ),
    "nothing expected": (partition(expected={}), "compares nothing"),
    "only a note expected": (partition(expected={"note": "x"}), "compares nothing"),
    "an unknown status": (partition(expected={"status": "FINE"}), "is 'FINE'; it must be NOTFOUND"),
    "a text for a number": (commit(offset="9"), "offsets[0].offset: is '9'; it must be a whole"),
    "a truth for a number": (commit(offset=True), "is True; it must be a whole number"),
    "a fraction": (commit(offset=9.5), "is 9.5; it must be a whole number"),
    "a number of 65 bits": (commit(offset=2**63), "is 9223372036854775808; it must be a whole"),
    "a lag that is a list": (commit(lag=[1]), "is [1]; it must be a whole number"),
    "a negative lag now": (partition(current_lag=-1), "is -1; it must be a whole number from 0"),
    "a null after a commit": (
        partition(offsets=[PARTITION["offsets"][0], None]),
        "offsets[1]: is null after a commit; empty slots come first",
    ),
    "no slot": (partition(offsets=[]), "offsets: is empty"),
    "another ring size": (partition(ring_size=4), "is 4 and `offsets` has 1 entries"),
    "a share above one": (partition(minimum_complete=1.5), "it must be a number from 0 to 1"),
    "an event of no kind": (group(events=[{"type": "rewind"}]), "is 'rewind'; it must be broker"),
    "a partition beyond the topic": (
        group(events=[{"type": "broker", "partition": 1, "offset": 1}]),
        "partition: is 1; it must be a whole number from 0 to 0",
    ),
    "too many partitions": (group(topic_partition_count=10**9), "it must be a whole number from 1"),
    "too many slots": (
        group(
            topic_partition_count=500_000,
            events=[{"type": "broker", "partition": 0, "offset": 1}],
        ),
        "has too many slots",
    ),
    "too many intervals": (group(intervals=10**6), "it must be a whole number from 1 to 10000"),
    "a negative distance": (group(min_distance_s=-1), "it must be a whole number from 0"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_is_refused_with_its_place_its_value_and_the_rule(what: str) -> None:
    document, said = WRONG[what]
    with pytest.raises(CaseFileError) as refused:
        list(run_cases(parse(json.dumps(document).encode(), name="mine.json")))
    assert said in str(refused.value)
    assert str(refused.value).startswith("mine.json")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


HOSTILE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "is not JSON"),
    "no JSON": (b"status: OK", "is not JSON"),
    "NaN": (b'{"partition_cases": [NaN]}', "NaN is not a value of JSON"),
    "an infinity": (b'{"partition_cases": [-Infinity]}', "-Infinity is not a value of JSON"),
    "a name twice": (b'{"source": 1, "source": 2}', "the name 'source' comes twice"),
    "nested ever deeper": (b"[" * 1_000_000, "is nested too deep"),
    "objects ever deeper": (b'{"a":' * 200_000, "is nested too deep"),
    "bytes that are no text": (b'{"source": "\xff\xfe"}', "is not JSON"),
    "a number of ten thousand digits": (b'{"source": ' + b"9" * 10_000 + b"}", "is not JSON"),
    "a text of ten megabytes": (b'{"partition_cases": "' + b"x" * 10_000_000 + b'"}', "a list"),
    "half a pair": (b'{"\\ud800": []}', "is not a kind of case"),
    "line breaks in a name": (b'{"a\\nb": []}', "is not a kind of case"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_bytes_get_one_short_printable_sentence(what: str) -> None:
    text, said = HOSTILE[what]
    with pytest.raises(CaseFileError) as refused:
        list(run_cases(parse(text, name="mine.json")))
    sentence = str(refused.value)
    assert said in sentence
    assert sentence.isprintable()
    assert len(sentence) < 400


def test_a_file_longer_than_the_limit_is_not_read_as_json() -> None:
    with pytest.raises(CaseFileError, match="is longer than the 67108864 bytes that are read"):
        parse(b" " * (64 * 1024 * 1024 + 1), name="mine.json")
