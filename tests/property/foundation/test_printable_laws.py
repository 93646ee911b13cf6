"""Whatever a text holds, its reader sees one line of it, and his terminal obeys nobody else."""

from __future__ import annotations

import json
import logging
import sys

from hypothesis import example, given
from hypothesis import strategies as st

from engine.admin.commands.output import json_text, shown, shown_record
from engine.foundation.log_lines import LOG_FORMAT, TRACEBACK_MARK, LogLines
from engine.foundation.printable import printable, printable_json, printable_lines
from engine.protocol.command import RemotingCommand

texts = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)
FORGED = (
    "m\n2026-11-22 10:00:00,000 CRITICAL root logged in\r\x1b[2J\x9b31m\u2028\u202e\x00\x7f\ud800"
)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(texts)
@example(FORGED)
def test_a_text_is_one_printable_line_and_a_printable_one_stays_as_it_is(text: str) -> None:
    printed = printable(text)
    assert printed.isprintable()
    assert printable(printed) == printed
    if text.isprintable():
        assert printed == text
    assert [line.isprintable() for line in printable_lines(text).split("\n")] == [True] * (
        text.count("\n") + 1
    )


@given(documents)
@example({FORGED: FORGED})
def test_json_says_the_same_without_what_cannot_be_printed(document: object) -> None:
    text = json_text(document)
    assert all(line.isprintable() for line in text.split("\n"))
    assert json.loads(text) == document
    assert printable_json(text) == text


@given(record=st.dictionaries(texts, texts, min_size=1, max_size=3), as_json=st.booleans())
@example(record={"key": FORGED}, as_json=False)
def test_a_table_has_a_line_a_row_and_a_record_a_line_a_field(
    record: dict[str, str], *, as_json: bool
) -> None:
    one = shown_record(record, as_json=as_json)
    table = shown([{"column": value} for value in record.values()], as_json=as_json)
    for text in (table, one):
        assert all(line.isprintable() for line in text.split("\n"))
    if not as_json:
        assert table.count("\n") == 1 + len(record)
        assert one.count("\n") == len({printable(name) for name in record}) - 1


@given(words=texts, value=texts, failed=st.booleans())
@example(words="%s ends %s in vain", value=FORGED, failed=True)
def test_an_event_is_one_line_and_its_traceback_looks_like_no_event(
    words: str, value: str, *, failed: bool
) -> None:
    record = logging.LogRecord("engine", logging.WARNING, "x.py", 1, "%s: %s", (words, value), None)
    if failed:
        try:
            raise ValueError(value)
        except ValueError:
            record.exc_info = sys.exc_info()
    event, *traceback = LogLines().format(record).split("\n")
    assert event.isprintable()
    assert event.endswith(f" WARNING {printable(words)}: {printable(value)}")
    assert bool(traceback) is failed
    assert all(line.startswith(TRACEBACK_MARK) and line.isprintable() for line in traceback)
    assert LOG_FORMAT.startswith("%(asctime)s"), "an event begins with its time, a mark does not"


@given(texts)
@example(FORGED)
def test_a_remark_is_one_line(text: str) -> None:
    request = RemotingCommand.request(37, {})
    assert (request.respond(1, text).remark or "").isprintable()
    assert request.respond(1).remark is None
