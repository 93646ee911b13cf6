"""Sentences made of columns: how the marts word `evidence` and `reason`.

Place in the walk: the last step of the marts that explain their figures. Invariant: a sentence
with an unknown part is unknown as a whole; who can do without the part says so with `or_text`.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention


def sentence(*parts: Column | str) -> Column:
    """The parts as one text; a plain string stands for itself. Null when a column is."""
    return F.concat(
        *(F.lit(part) if isinstance(part, str) else part.cast("string") for part in parts)
    )


def or_text(part: Column, text: str) -> Column:
    """The part as text, or `text` where it is unknown."""
    return F.coalesce(part.cast("string"), F.lit(text))


def messages(count: Column) -> Column:
    """So many messages, in words: 1 message, 40 messages, an unknown number of messages."""
    told = F.when(count == 1, "1 message").otherwise(sentence(count, " messages"))
    return or_text(told, "an unknown number of messages")
