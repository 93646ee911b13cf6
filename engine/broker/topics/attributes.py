"""Topic attributes: the known keys, their legal values and how a tool changes them.

Place in the walk: beside it; UPDATE_AND_CREATE_TOPIC carries changes as `+key=value,-key`, and
topics.json keeps the outcome. The code that obeys an attribute defines its meaning.

Invariant: a topic holds known attributes with legal values only; a change is taken whole or not at
all. Absent on purpose: attributes that this engine could not keep a promise about: they are refused
rather than stored without effect. Rules and words are RocketMQ's, but for the keys of our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.foundation.errors import RequestRefused
from engine.protocol.codes import ResponseCode

DEDUPLICATION: Final = "message.deduplication"
"""Ours: store a message once, however often its producer sends it (see `sending/deduplication`)."""

TAG_FILTER: Final = "message.tag.filter"
"""Ours: what a consume queue keeps of a message's tags (see `engine.protocol.tag_bits`)."""

HASH, BITMAP = "HASH", "BITMAP"

FORCED_SHRINK: Final = "+queue.shrink=forced"
"""Ours: a word of a change and not kept: take the change although it strands messages."""


@dataclass(frozen=True, slots=True)
class _Attribute:
    allowed: tuple[str, ...]
    changeable: bool = True
    """May it change once the topic exists?"""


ATTRIBUTES: Final[Mapping[str, _Attribute]] = {
    DEDUPLICATION: _Attribute(("true", "false")),
    TAG_FILTER: _Attribute((HASH, BITMAP)),
    "message.type": _Attribute(("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")),
    "queue.type": _Attribute(("SimpleCQ",), changeable=False),
    "cleanup.policy": _Attribute(("DELETE",), changeable=False),
}
"""Every attribute a topic may have."""


def changed_attributes(current: Mapping[str, str] | None, change: str | None) -> dict[str, str]:
    """The attributes after `change`; `current` is None for a topic that is being made.

    Raises RequestRefused for a change that is no such text, or that the rules do not allow.
    """
    changed = dict(current or {})
    touched: list[str] = []
    for word in (change or "").split(","):
        if not word:
            continue
        key, value = _parsed(word)
        if key in touched:
            raise _refused(f"alter duplication key. key: {key}")
        touched.append(key)
        if value is None:
            if current is None:
                raise _refused(f"only add attribute is supported while creating topic. key: {key}")
            if key not in current:
                raise _refused(f"attempt to delete a nonexistent key: {key}")
        _check(key, value, is_new=current is None)
        if value is None:
            del changed[key]
        else:
            changed[key] = value
    return changed


def without_force(change: str | None) -> tuple[str, bool]:
    """The change less FORCED_SHRINK; was it in it?"""
    words = (change or "").split(",")
    rest = [word for word in words if word != FORCED_SHRINK]
    return ",".join(rest), len(rest) < len(words)


def tag_filter(attributes: Mapping[str, str]) -> str:
    """HASH: one tag a message, as in RocketMQ. BITMAP: several, as bits."""
    return attributes.get(TAG_FILTER, HASH)


def is_on(attributes: Mapping[str, str], key: str) -> bool:
    """Is an attribute of the kind yes or no set to yes?"""
    return attributes.get(key) == "true"


def _parsed(word: str) -> tuple[str, str | None]:
    """`+key=value` as both, `-key` as the key alone."""
    key, separator, value = word.partition("=")
    if separator and not key.startswith("+"):
        raise _refused(f"add/alter attribute format is wrong: {key}; write +key=value")
    if not separator and not key.startswith("-"):
        raise _refused(f"delete attribute format is wrong: {key}; write -key")
    return key[1:], value if separator else None


def _check(key: str, value: str | None, *, is_new: bool) -> None:
    attribute = ATTRIBUTES.get(key)
    if attribute is None:
        raise _refused(f"unsupported key: {key}; there are {', '.join(sorted(ATTRIBUTES))}")
    if not is_new and not attribute.changeable:
        raise _refused(f"attempt to update an unchangeable attribute. key: {key}")
    if value is not None and value not in attribute.allowed:
        raise _refused(f"attribute {key}={value}: value is not in set: {list(attribute.allowed)}")


def _refused(remark: str) -> RequestRefused:
    return RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
