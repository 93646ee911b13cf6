"""A consumer's topic selector, either by tags or by SQL92 over message properties.

Place in the walk: handed to `subscribe`; heartbeats carry it to the brokers. By tags both sides
filter, the broker by hashes or bits, the client exactly; by SQL92 the broker alone does.

Absent on purpose: evaluating. A broker that cannot is asked before the consumer starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from engine.protocol.bodies import SubscriptionData
from engine.protocol.sql92 import SQL92_EXPRESSION

BY_TAG = "TAG"


@dataclass(frozen=True, slots=True)
class MessageSelector:
    """An expression and its type; see `by_tag` and `by_sql`."""

    expression: str
    expression_type: str = BY_TAG

    @classmethod
    def by_tag(cls, expression: str) -> Self:
        """`*`, or tags joined by `||`: messages that carry one of them."""
        return cls(expression)

    @classmethod
    def by_sql(cls, expression: str) -> Self:
        """Messages for whose properties a SQL92 condition is true, such as `n > 5 AND color IS NOT
        NULL`.

        The brokers have to have enablePropertyFilter set. `docs/selectors.md` has what surprises in
        RocketMQ's conditions: `TRUE = a` selects nothing, `a = TRUE` is what was meant.
        """
        return cls(expression, SQL92_EXPRESSION)

    def subscription(self, topic: str, *, sub_version: int) -> SubscriptionData:
        """As heartbeats carry it. Raises RequestRefused for an expression that is none."""
        if self.expression_type == BY_TAG:
            return SubscriptionData.build(topic, self.expression, sub_version=sub_version)
        return SubscriptionData.by_selector(
            topic, self.expression, self.expression_type, sub_version=sub_version
        )
