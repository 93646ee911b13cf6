"""How much room a message's properties leave for what its further copies add."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.foundation.limits import PROPERTIES_BYTES_MAX
from engine.protocol.copy_room import (
    ADDED,
    ROOMY_BYTES,
    fits_with_copies,
    noted_properties,
    properties_bytes,
    room_needed,
    without_room,
)
from engine.protocol.properties import PROPERTY_LEFT_OUT, encode_properties
from tests.amounts import examples

names = st.sampled_from(sorted(ADDED)) | st.sampled_from(("TAGS", "KEYS", "a", "ü"))
values = st.sampled_from(("v", "ü" * 40, "w" * 300, "x" * 15_000, "y" * 29_000, "z" * 31_000))
sent = st.dictionaries(names, values, max_size=8)
steps = st.lists(
    st.dictionaries(st.sampled_from(sorted(ADDED)), st.booleans(), max_size=len(ADDED)), max_size=6
)
"""Of each step, the names that it sets; the others it leaves or, where False, takes away."""


@given(sent, steps)
@examples(60, in_full=5000)
def test_what_leaves_room_fits_a_record_after_any_steps_in_any_order(
    properties: dict[str, str], copies: list[dict[str, bool]]
) -> None:
    accepted = fits_with_copies(properties_bytes(properties), properties)
    assert accepted == (properties_bytes(properties) + room_needed(properties) <= 32_767) or (
        properties_bytes(properties) <= ROOMY_BYTES
    )
    copied = dict(properties)
    for step in copies:
        for name, is_set in step.items():
            copied.pop(name, None)
            if is_set:
                copied[name] = "c" * ADDED[name]
        if accepted:
            assert len(encode_properties(copied).encode()) <= PROPERTIES_BYTES_MAX
            assert fits_with_copies(properties_bytes(copied), copied), "no step is refused later"


def test_a_copy_that_says_all_already_needs_no_more_room() -> None:
    whole = {name: "c" * value_bytes for name, value_bytes in ADDED.items()}
    assert room_needed(whole) == 1
    assert room_needed({}) == 1 + properties_bytes(whole) <= PROPERTIES_BYTES_MAX - ROOMY_BYTES


def test_the_refusal_says_what_is_the_senders_what_is_reserved_and_what_to_do() -> None:
    properties = {"BIG": "x" * 30_495, "CLUSTER": "DefaultCluster"}
    size = properties_bytes(properties)
    reserved = room_needed(properties)
    assert (size, reserved) == (30_523, 2862)
    assert without_room(size, properties, own=("CLUSTER",)) == (
        "its properties: 30500 bytes of the sender, 23 that the broker adds, and 2862 reserved for "
        "what its retries, dead letter and re-drive add, 33385 in all; the limit is 32767: shorten "
        "them by 618 bytes, long values belong into the body"
    )
    assert without_room(size, properties).startswith(
        "its properties: 30523 bytes of the sender, and 2862 reserved"
    )


def test_what_a_copy_has_no_room_for_is_named_in_it_with_the_message_that_has_it() -> None:
    whole = {"BIG": "x" * 32_600, "UNIQ_KEY": "U", "WAIT": "false"}
    assert noted_properties(whole, ("WAIT",), whole_in="message M") == (whole, {})
    noted, left_out = noted_properties(whole, ("WAIT",), whole_in="message M", room_bytes=300)
    assert left_out == {"BIG": 32_605}
    assert noted == {
        "UNIQ_KEY": "U",
        "WAIT": "false",
        PROPERTY_LEFT_OUT: "no room for properties 'BIG' (32605 bytes); message M has them",
    }
    strange = {"\U0001f600" * 60 + str(n): "v" * 9000 for n in range(9)}
    noted, left_out = noted_properties(strange, (), whole_in="message M")
    assert len(left_out) == 6
    assert "and 3 more" in noted[PROPERTY_LEFT_OUT] or noted[PROPERTY_LEFT_OUT].isascii()
    assert fits_with_copies(properties_bytes(noted), noted), "nothing is left out twice"
