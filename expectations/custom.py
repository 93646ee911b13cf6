"""Custom Great Expectations expectation that a check's violation count is zero.

A subject counts, in one pass over millions of rows, what breaks a law per key; Great
Expectations then names the keys. Its own window and uniqueness checks over all rows cost ten
times as long and lose the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import great_expectations.expectations as gxe

__all__ = ["ExpectNoBreach", "no_breach"]


class ExpectNoBreach(gxe.ExpectColumnValuesToBeBetween):
    """Every key of the subject has no breach of the law that `column` counts."""

    min_value: float = 0
    max_value: float = 0
    library_metadata: ClassVar[dict[str, str | list[str] | bool]] = {
        "maturity": "production",
        "tags": ["tidemark"],
        "contributors": ["tidemark"],
    }

    def _get_domain_kwargs(self) -> dict[str, Any]:
        """As inherited, but for the configuration: it is made once, and not for every key."""
        return self._values_of(self.domain_keys)

    def _get_success_kwargs(self) -> dict[str, Any]:
        return self._values_of((*self.success_keys, *self.domain_keys))

    def _values_of(self, keys: Iterable[str]) -> dict[str, Any]:
        given = self.configuration.kwargs
        return {key: given.get(key, self._get_default_value(key)) for key in keys}


def no_breach(column: str) -> Callable[[str, str], ExpectNoBreach]:
    """The expectation that `column` is zero for every key; name and severity come later."""

    def expectation(name: str, severity: str) -> ExpectNoBreach:
        return ExpectNoBreach(column=column, severity=severity, meta={"check": name})

    return expectation
