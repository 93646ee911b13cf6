"""Hypothesis strategies for SQL92 selectors and message properties, and recorded rows.

Selectors are sound, careless or word salad; most of those in the rows can match nothing, and each
row has what a real RocketMQ said of it.
"""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import strategies as st

NAMES = ("a", "b", "color", "_x$1")
NUMBERS = (
    *("0", "1", "5", "5L", "42", "2147483647", "2147483648", "9223372036854775807l"),
    *("9223372036854775808", "5.0", "5.", ".5", "1E2", "1.5e-3", "0.0", "1E999", "4.9E-324", "007"),
)
TEXTS = (
    *("", "x", "red", "RED", "reddish", "it's", "true", "TRUE", "false", "ä😀", "٥", "五"),
    *("5", "05", "+5", "-5", "5.0", "5.5", " 5 ", "5d", "5L", "5_0", "1e2", "-0.0", "0.0", "-"),
    *("NaN", "Infinity", "0x1p3", "0x1p99999999", "00000000000000000000005"),
    *("2147483648", "9223372036854775808"),
)

texts = st.sampled_from(TEXTS) | st.text(max_size=4).filter(lambda text: "\x00" not in text)
quoted = texts.map(lambda text: "'" + text.replace("'", "''") + "'")
names = st.sampled_from(NAMES)
signs = st.sampled_from(("=", "<>", "<", "<=", ">", ">="))
negations = st.sampled_from(("", "NOT "))
searches = st.sampled_from(("CONTAINS", "STARTSWITH", "endswith"))
lists = st.lists(quoted, min_size=1, max_size=6).map(", ".join)

properties = st.dictionaries(
    names, st.sampled_from(TEXTS[1:]) | texts.filter(bool), min_size=1, max_size=4
)

_numbers = st.sampled_from(NUMBERS[:6]) | st.integers(-9, 9).map(str) | st.just("5.5")
_atoms = st.one_of(
    st.builds("{} {} {}".format, names, signs, _numbers | names),
    st.builds("{} {} {}".format, _numbers, signs, names),
    st.builds("{} {} {}".format, names, st.sampled_from(("=", "<>")), quoted | st.just("TRUE")),
    st.builds(
        "{} {}BETWEEN {} AND 7".format, names, negations, st.sampled_from(("-1", "2.5", "b"))
    ),
    st.builds("{} {}IN ({})".format, names, negations, lists),
    st.builds("{} {}{} {}".format, names, negations, searches, quoted),
    st.builds("{} IS {}NULL".format, names, negations),
    st.builds("{} = TRUE".format, names) | names,
)
sound = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(("AND", "or")), inner),
        st.builds("NOT ({})".format, inner),
        st.builds("({}) IS NOT NULL".format, inner),
        st.builds("({}) = ({})".format, inner, inner),
    ),
    max_leaves=4,
)
"""Conditions as somebody may write them; few are refused."""

_values = st.one_of(
    names, names, st.sampled_from(NUMBERS), quoted, st.sampled_from(("TRUE", "FALSE", "NULL"))
)
careless = st.recursive(
    _values,
    lambda inner: st.one_of(
        st.tuples(inner, signs, inner).map(" ".join),
        st.builds("{} {}BETWEEN {} AND {}".format, inner, negations, inner, inner),
        st.builds("{} {}IN ({})".format, inner, negations, lists),
        st.builds("{} {}{} {}".format, inner, negations, searches, quoted),
        st.builds("{} IS {}NULL".format, inner, negations),
        st.builds("{} {} {}".format, inner, st.sampled_from(("AND", "OR")), inner),
        st.builds("{} ({})".format, st.sampled_from(("NOT", "", "+", "-")), inner),
        st.builds("{} {}".format, st.sampled_from(("NOT", "+", "-")), inner),
    ),
    max_leaves=4,
)
"""Any value in any place; many break a rule of types."""

WORDS = (
    *NAMES,
    *NUMBERS,
    *("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "NULL", "IS"),
    *("CONTAINS", "startsWith", "EndsWith", "#", "5x", "5Ex", "$", "ä", "\t", "\x0b"),
    *("=", "<>", "<", "<=", ">", ">=", "(", ")", ",", "+", "-", "'x'", "''", "'it''s'", "'"),
    *("--", "-- gone\n", "/* gone */", "/*", "/***/", "*/", "''''"),
)
word_salad = st.lists(st.sampled_from(WORDS), max_size=12).flatmap(
    lambda words: st.sampled_from((" ", "")).map(lambda between: between.join(words))
)

ROWS = Path(__file__).parent / "cases" / "selectors_on_the_wire.json"
"""Written by `python -m tests.interop.selector_rows`."""
WITHOUT = "without"
VALUES = ("TRUE", "true", "FALSE", "x", "red", "1", "5", "5.0", "10")
"""Of the property `a`, one of each message; one has no `a`, and none a `b`."""
REFUSED = "REFUSED"

Row = str | list[str]
"""REFUSED, or the messages that match, by their value of `a`."""


def message_properties() -> dict[str, dict[str, str]]:
    """Name → properties of each message of the rows."""
    return {WITHOUT: {}} | {value: {"a": value} for value in VALUES}


def known_rows() -> dict[str, Row]:
    """What Apache RocketMQ 5.5.0 said of each selector."""
    rows: dict[str, Row] = json.loads(ROWS.read_text(encoding="utf-8"))
    return rows
