"""Inflates the bodies of messages that were read, each by itself.

Place in the walk: beside the last steps.

Invariant: one body that cannot be inflated keeps no other message from being read. It stays as it
is stored, under its sysFlag, and a log line names it: its reader finds that it is not what it
should be, and a listener that fails on it sends it back like any other. RocketMQ's client drops it
and what came behind it in the same answer. Absent on purpose: how bodies are inflated.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from engine.foundation.errors import CorruptRecord
from engine.protocol.compression import decompress
from engine.protocol.message import MessageExt

_log = logging.getLogger(__name__)


def inflate_bodies(messages: Iterable[MessageExt]) -> None:
    """Replace compressed bodies by what they were."""
    for message in messages:
        try:
            message.body = decompress(message.body, message.sys_flag)
        except CorruptRecord as error:
            _log.warning(
                "%s at %s queue %d offset %d keeps its body as it is stored: %s",
                *(message.message_id, message.topic, message.queue_id, message.queue_offset),
                error,
            )
