"""Key-value settings by namespace, which name servers keep for tools (such as ORDER_TOPIC_CONFIG).

Invariant: a namespace is there exactly while it has keys. Absent on purpose: files, meaning.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.foundation.errors import CorruptRecord, RequestRefused
from engine.foundation.limits import TOPICS_MAX
from engine.protocol.codes import ResponseCode

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""Key: topic; value: `broker:queues;…`. Brokers get it with each registration."""


class KeyValues:
    """The settings of one name server."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, str]] = {}

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raises RequestRefused when there are too many."""
        table = self._namespaces.setdefault(namespace, {})
        if key not in table and sum(map(len, self._namespaces.values())) >= TOPICS_MAX:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"{namespace}/{key} is one too many: {TOPICS_MAX} are kept",
            )
        table[key] = value

    def get(self, namespace: str, key: str) -> str | None:
        """A value; None when it is not set."""
        return self._namespaces.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Forget a value."""
        table = self._namespaces.get(namespace, {})
        table.pop(key, None)
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
