"""Answers of `tidemark admin` as text: tables, JSON, times and permissions."""

from __future__ import annotations

import json

import pytest

from engine.admin.commands.offsets import LATEST, read_time
from engine.admin.commands.output import moment, perm_text, shown, shown_record
from engine.admin.commands.session import sentence
from engine.admin.commands.topics import read_perm
from engine.foundation.errors import ConfigError, ConnectFailed, RequestRefused
from engine.protocol.names import Perm

ROWS = [
    {"queue": 0, "broker": "broker-a", "lag": 12, "last": None, "order": True},
    {"queue": 10, "broker": "b", "lag": None, "last": "now", "order": False},
]


def test_a_table_aligns_its_columns_and_leaves_the_unknown_empty() -> None:
    assert shown(ROWS, as_json=False).splitlines() == [
        "queue  broker    lag  last  order",
        "-----  --------  ---  ----  -----",
        "    0  broker-a   12        yes",
        "   10  b              now   no",
    ]


def test_json_keeps_numbers_and_says_null_for_the_unknown() -> None:
    assert json.loads(shown(ROWS, as_json=True)) == ROWS
    assert shown([], as_json=True) == "[]"
    assert shown([], as_json=False, empty="no queues") == "no queues"


def test_a_record_has_a_line_a_field() -> None:
    record = {"topic": "orders", "read_queues": 4}
    assert shown_record(record, as_json=False) == "topic        orders\nread_queues  4"
    assert json.loads(shown_record(record, as_json=True)) == record


def test_a_time_that_is_unknown_is_none() -> None:
    assert moment(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert moment(0) is None
    assert moment(-1) is None


@pytest.mark.parametrize(
    ("perm", "text"), [(6, "rw"), (4, "r"), (2, "w"), (7, "rw"), (0, "-"), (1, "-")]
)
def test_permissions_read_as_letters(perm: int, text: str) -> None:
    assert perm_text(perm) == text


def test_permissions_are_written_as_letters() -> None:
    assert read_perm("rw") == Perm.READ | Perm.WRITE
    with pytest.raises(ConfigError, match="r, w or rw"):
        read_perm("rx")


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("earliest", 0),
        ("latest", LATEST),
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20.123", 1_700_000_000_123),
        ("2023-11-14T23:13:20.123+01:00", 1_700_000_000_123),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_a_time_is_given_in_words_iso_or_milliseconds(text: str, time_ms: int) -> None:
    assert read_time(text) == time_ms


def test_what_is_no_time_is_refused_with_what_would_be_one() -> None:
    with pytest.raises(ConfigError, match="ISO 8601"):
        read_time("yesterday")


def test_errors_are_sentences_with_code_and_name() -> None:
    refused = RequestRefused(17, "no broker has the topic orders")
    assert sentence(refused) == "refused with 17 TOPIC_NOT_EXIST: no broker has the topic orders"
    assert "UNKNOWN" in sentence(RequestRefused(9999, "odd"))
    assert sentence(ConnectFailed("no connection to x")).endswith("is the address right?")
