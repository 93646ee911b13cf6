"""Key-value settings of a name server."""

from __future__ import annotations

import pytest

from engine.foundation.errors import CorruptRecord
from engine.namesrv.key_values import KeyValues


def test_values_are_kept_by_namespace_and_forgotten_when_deleted() -> None:
    values = KeyValues()
    values.put("ns", "k", "v")
    assert values.get("ns", "k") == "v"
    assert values.get("other", "k") is None
    values.delete("ns", "k")
    values.delete("ns", "k")
    assert values.namespace("ns") == {}
    assert values.to_document() == {"configTable": {}}


def test_the_file_reads_back() -> None:
    values, again = KeyValues(), KeyValues()
    values.put("ns", "b", "2")
    values.put("ns", "a", "1")
    again.load(values.to_document())
    assert again.namespace("ns") == {"a": "1", "b": "2"}


@pytest.mark.parametrize("document", [{}, {"configTable": 3}, {"configTable": {"ns": "v"}}])
def test_a_file_of_another_form_is_called_damaged(document: dict[str, object]) -> None:
    with pytest.raises(CorruptRecord):
        KeyValues().load(document)
