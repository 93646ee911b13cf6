"""The string form of properties is hostile text: every reader of it reads the same, and what was
once read can be written again."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from engine.protocol.properties import (
    decode_properties,
    encode_properties,
    fitting_properties,
)
from engine.store.record_reading import property_value

NAMES = ("TAGS", "KEYS", "UNIQ_KEY", "DELAY", "a")
texts = st.lists(
    st.sampled_from(("\x01", "\x02", "\x01", "\x02", "\0", "v", "ü", *NAMES)), max_size=30
).map("".join)


@given(texts | st.text(max_size=50))
@example("a\x01b\x01c\x02DELAY\x011\x02")
@example("TAGS\x01a\x02TAGS\x01\x02")
def test_what_was_read_can_be_written_and_is_read_as_the_same(text: str) -> None:
    read = decode_properties(text)
    assert decode_properties(encode_properties(read)) == read


@given(texts)
@example("TAGS\x01one\x02TAGS\x01two\x02")
@example("TAGS\x01a\x02TAGS\x01\x02")
@example("x\x01TAGS\x01a\x02")
@example("TAGS\x01TAGS\x01a")
def test_one_property_has_the_value_that_all_of_them_together_say(text: str) -> None:
    read = decode_properties(text)
    for name in NAMES:
        found = property_value(text.encode(), f"{name}\x01".encode())
        assert found.decode() == read.get(name, "")


@given(
    st.dictionaries(st.sampled_from((*NAMES, "b", "c", "WAIT")), st.text("vü", max_size=60)),
    st.sets(st.sampled_from(("WAIT", "UNIQ_KEY"))),
    st.integers(0, 300),
)
def test_what_fits_is_as_much_as_fits_and_the_needed_is_always_there(
    properties: dict[str, str], needed: set[str], bytes_max: int
) -> None:
    kept, left_out = fitting_properties(properties, needed, bytes_max)
    assert kept == {name: properties[name] for name in properties if name not in left_out}
    assert not needed & set(left_out)
    size = len(encode_properties(kept).encode())
    assert size <= bytes_max or set(kept) <= needed
    if left_out:
        last = left_out[-1]
        again = len(encode_properties(kept | {last: properties[last]}).encode())
        assert again > bytes_max, f"{last} was left out for nothing"
    if len(encode_properties(properties).encode()) <= bytes_max:
        assert not left_out
