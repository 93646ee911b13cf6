"""Namespaced key-value settings stored for tools, such as those in ORDER_TOPIC_CONFIG.

Invariant: a namespace is there exactly while it has keys. Absent on purpose: files, meaning.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from engine.foundation.errors import CorruptRecord, RequestRefused
from engine.foundation.limits import (
    KEY_VALUE_CHARS_MAX,
    KEY_VALUE_NAME_CHARS_MAX,
    KEY_VALUES_BYTES_MAX,
    TOPICS_MAX,
)
from engine.protocol.codes import ResponseCode

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""Key: topic; value: `broker:queues;…`. Brokers get it with each registration."""


class KeyValues:
    """The settings of one name server."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, str]] = {}
        self._count = 0
        self._bytes = 0

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raises RequestRefused when a text is too long, or there are too many."""
        for what, text, length_max in (
            ("namespace", namespace, KEY_VALUE_NAME_CHARS_MAX),
            ("key", key, KEY_VALUE_NAME_CHARS_MAX),
            ("value", value, KEY_VALUE_CHARS_MAX),
        ):
            if len(text) > length_max:
                raise RequestRefused(
                    ResponseCode.INVALID_PARAMETER,
                    f"the {what} {text[:40]!r}… has {len(text)} characters: {length_max} at most",
                )
        old = self.get(namespace, key)
        growth = _bytes_of(namespace, key, value)
        if old is not None:
            growth -= _bytes_of(namespace, key, old)
        elif self._count >= TOPICS_MAX:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"{namespace}/{key} is one too many: {TOPICS_MAX} are kept",
            )
        if growth > 0 and self._bytes + growth > KEY_VALUES_BYTES_MAX:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"{namespace}/{key} is {growth} bytes more than the {self._bytes} kept: "
                f"{KEY_VALUES_BYTES_MAX} at most; delete others first",
            )
        self._namespaces.setdefault(namespace, {})[key] = value
        self._count += old is None
        self._bytes += growth

    def get(self, namespace: str, key: str) -> str | None:
        """A value; None when it is not set."""
        return self._namespaces.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Forget a value."""
        table = self._namespaces.get(namespace, {})
        old = table.pop(key, None)
        if old is not None:
            self._count -= 1
            self._bytes -= _bytes_of(namespace, key, old)
        if not table:
            self._namespaces.pop(namespace, None)

    def namespace(self, namespace: str) -> dict[str, str]:
        """All of a namespace, by key."""
        return dict(sorted(self._namespaces.get(namespace, {}).items()))

    def to_document(self) -> dict[str, object]:
        """Everything, as kvConfig.json has it."""
        return {"configTable": {name: self.namespace(name) for name in sorted(self._namespaces)}}

    def load(self, document: Mapping[str, object]) -> None:
        """Take over kvConfig.json as parsed. Raises CorruptRecord."""
        table = document.get("configTable")
        if not isinstance(table, Mapping):
            raise CorruptRecord("kvConfig.json holds no configTable")
        loaded: dict[str, dict[str, str]] = {}
        for namespace, values in table.items():
            if not isinstance(values, Mapping):
                raise CorruptRecord(f"kvConfig.json: {namespace!r} holds no values")
            loaded[str(namespace)] = {str(key): str(value) for key, value in values.items()}
        self._namespaces = loaded
        self._count = sum(map(len, loaded.values()))
        self._bytes = sum(
            _bytes_of(namespace, key, value)
            for namespace, table in loaded.items()
            for key, value in table.items()
        )


def _bytes_of(namespace: str, key: str, value: str) -> int:
    """What an entry adds to a document at most."""
    return len(msgspec.json.encode({namespace: {key: value}}))
