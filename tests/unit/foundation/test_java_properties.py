"""Configuration files are read as Java reads them, and changed without touching the rest (C10)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.foundation.errors import ConfigError
from engine.foundation.java_properties import changed, parse

HARD = (
    "# a comment \\\nbrokerName=broker-a\n! also = one\n  \t brokerId : 0\nlistenPort 10911\n"
    "storePathRootDir = /data/rocket\\\n      mq/store\nempty=\nnothing\nspaced key=v\n"
    "esc\\ aped\\:key\\=x=a\\tb\\nc\\\\d\\qe\nuni=\\u00e4\\u4e2d\\u0041\ntrail=x  \n"
    "cont=one,\\\n\\\n   # no comment,\\\n two\r\ncrlf=yes\rcr=also\n=novalue\n:x\nk==v\nk2= : v\n"
    "k3 = = v\nback=\\\\\nafter=1\nback3=\\\\\\\nmore\nbrokerName=broker-b\nlast=end\\"
)
AS_JAVA_READS_IT = {  # java.util.Properties of Java 17 on the same text.
    "": "x",
    "after": "1",
    "back": "\\",
    "back3": "\\more",
    "brokerId": "0",
    "brokerName": "broker-b",
    "cont": "one,# no comment,two",
    "cr": "also",
    "crlf": "yes",
    "empty": "",
    "esc aped:key=x": "a\tb\nc\\dqe",
    "k": "=v",
    "k2": ": v",
    "k3": "= v",
    "last": "end",
    "listenPort": "10911",
    "nothing": "",
    "spaced": "key=v",
    "storePathRootDir": "/data/rocketmq/store",
    "trail": "x  ",
    "uni": "ä中A",
}

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def test_a_hard_file_reads_as_java_reads_it() -> None:
    assert {one.key: one.value for one in parse(HARD)} == AS_JAVA_READS_IT


def test_a_setting_knows_its_first_line() -> None:
    lines = {one.key: one.line for one in parse("\n# c\na=1\\\n 2\nb=3\n")}
    assert lines == {"a": 3, "b": 5}


def test_half_an_escape_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"line 2.*hexadecimal"):
        parse("a=1\nb=\\u00g1\n")


def test_a_change_keeps_comments_order_and_the_other_settings() -> None:
    text = "# ours\nfileReservedTime=72\n\n# theirs\nbrokerName : b\nfileReservedTime = 4\\\n8\n"
    assert changed(text, {"fileReservedTime": "24", "deleteWhen": "05"}) == (
        "# ours\nfileReservedTime=72\n\n# theirs\nbrokerName : b\nfileReservedTime=24\n"
        "deleteWhen=05\n"
    )


@given(words, st.dictionaries(words.filter(str.strip), words, max_size=4))
def test_what_is_changed_reads_back_and_nothing_else_moves(
    text: str, changes: dict[str, str]
) -> None:
    text = text.replace("\\u", "")
    before = {one.key: one.value for one in parse(text)}
    assert changed(text, {}) == text
    after = {one.key: one.value for one in parse(changed(text, changes))}
    assert after == before | changes
