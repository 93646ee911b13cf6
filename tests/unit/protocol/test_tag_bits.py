"""Row D3, the second way: several tags of a message as bits of one word."""

from __future__ import annotations

from engine.protocol.hashes import tags_code
from engine.protocol.tag_bits import (
    TAG_BITS,
    WORD_MARK,
    split_tags,
    tag_mask,
    tag_test,
    tags_word,
)


def test_tags_are_joined_as_in_subscriptions() -> None:
    assert split_tags(" red || big||red|| ") == ["red", "big"]
    assert split_tags("red") == ["red"]
    assert split_tags("||") == split_tags(None) == []


def test_a_tag_has_the_same_bits_for_ever() -> None:
    """Consume queues hold them: another hash or another count of bits would lose messages."""
    assert tag_mask("TagA") == GOLDEN["TagA"]
    assert tag_mask("grün") == GOLDEN["grün"]
    assert tags_word("TagA||grün") == WORD_MARK | GOLDEN["TagA"] | GOLDEN["grün"]
    assert tags_word("") == WORD_MARK
    assert all(mask.bit_count() == TAG_BITS for mask in GOLDEN.values())


def test_a_message_passes_with_any_wanted_tag_among_its_own() -> None:
    red = tag_test(["red"], [tags_code("red")])
    assert red(tags_word("red"))
    assert red(tags_word("small||red||round"))
    assert not red(tags_word("small||round"))
    assert not red(tags_word(None)), "no tag matches nothing but *"
    assert tag_test(["red", "blue"], [])(tags_word("blue"))


def test_both_forms_are_distinguished_in_one_queue() -> None:
    """Units written before a topic lost its attribute, or after, are read as what they are."""
    test = tag_test(["TagA"], [tags_code("TagA")])
    assert test(tags_code("TagA"))
    assert test(tags_word("TagA"))
    assert not test(tags_code("TagB"))
    assert not test(0), "a message without a tag"


def test_beyond_32_bits_rocketmq_compares_the_lower_ones() -> None:
    code = tags_code("TagA")
    test = tag_test(["TagA"], [code])
    deliver_time_ms = (1_700_000_000_000 >> 32 << 32) | (code & 0xFFFFFFFF)
    assert test(deliver_time_ms)
    assert not test(deliver_time_ms + 1)


GOLDEN = {
    "TagA": 0x0001108040010004,
    "grün": 0x0080010110000880,
}
