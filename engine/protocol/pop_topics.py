"""Retry topics of POP: builds their names from group and topic, and splits them again.

    %RETRY%group+topic    V2 (enableRetryTopicV2)
    %RETRY%group_topic    V1: a name of either may hold the sign as well

Place in the walk: a broker puts a message there whose invisible time ran out; an observer asks here
whose it is. Neither a group nor a topic may be named with a plus sign, so a V2 name says it alone.
Of a V1 name either the copy (ORIGIN_GROUP) or a group that reads the topic says it.

Invariant: nothing is guessed: a name that several groups could have made belongs to none of them.
Absent on purpose: the retry topic %RETRY%group of a group that is not POP.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from engine.protocol.names import RETRY_PREFIX

V1_SEPARATOR: Final = "_"
V2_SEPARATOR: Final = "+"


class PopRetryTopic(NamedTuple):
    """The group and the topic whose messages such a topic holds."""

    group: str
    topic: str
    """Where they were first; it may be a retry topic of another name itself."""


def pop_retry_topic(group: str, topic: str, *, is_v2: bool = False) -> str:
    """The topic into which messages of `topic` go whose invisible time ran out for `group`."""
    return f"{RETRY_PREFIX}{group}{V2_SEPARATOR if is_v2 else V1_SEPARATOR}{topic}"


def pop_retry_of(topic: str, groups: Iterable[str] = ()) -> PopRetryTopic | None:
    """Group and topic of a POP retry topic; None when it is none, or could be of several.

    `groups`: those that may own it, such as all that read it. One of the name behind the prefix is
    no POP group: it is its own retry topic.
    """
    if not topic.startswith(RETRY_PREFIX):
        return None
    rest = topic.removeprefix(RETRY_PREFIX)
    group, separator, origin = rest.partition(V2_SEPARATOR)
    if separator:
        return PopRetryTopic(group, origin) if group and origin else None
    owners = {
        one
        for one in groups
        if one == rest or (one and rest.startswith(one + V1_SEPARATOR) and len(one) + 1 < len(rest))
    }
    if len(owners) != 1:
        return None
    (owner,) = owners
    return None if owner == rest else PopRetryTopic(owner, rest[len(owner) + 1 :])
