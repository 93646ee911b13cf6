"""Dead-letter decisions stored as messages: a re-driven copy or a discard record.

RocketMQ has no words for either, so they are plain messages that any broker stores:

  re-driven   a copy in %RETRY%group whose property REDRIVEN_FROM is the dead letter's offset
              message id: one write is both the new try and the record of it
  discarded   a message of DISCARDS_TOPIC with that id as its key; the dead letter stays until
              retention ends, as all messages do

Invariant: who decided and why stand in the message itself. Absent on purpose: sending (the admin
client), reporting the step (the broker). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

DISCARDS_TOPIC: Final = "TIDEMARK_DLQ_DISCARDS"
"""Made when the first dead letter is discarded."""

PROPERTY_REDRIVEN_FROM: Final = "REDRIVEN_FROM"
PROPERTY_DECIDED_BY: Final = "DECIDED_BY"
PROPERTY_DECIDED_WHY: Final = "DECIDED_WHY"
PROPERTY_DEAD_GROUP: Final = "DEAD_GROUP"
PROPERTY_DEAD_MESSAGE_ID: Final = "DEAD_UNIQ_KEY"
PROPERTY_DEAD_RECONSUME_TIMES: Final = "DEAD_RECONSUME_TIMES"


def decision_in_words(properties: Mapping[str, str]) -> str:
    """The party that decided, and the reason, as one sentence part."""
    who = properties.get(PROPERTY_DECIDED_BY, "somebody")
    return f"by {who}: {properties.get(PROPERTY_DECIDED_WHY, 'no reason given')}"
