"""Deleted groups are noted until both versions of the file of offsets were begun after them."""

from __future__ import annotations

import pytest

from engine.broker.groups.group_configs import DeletedGroups
from engine.foundation.errors import CorruptRecord


def noted(*groups: str) -> DeletedGroups:
    made = DeletedGroups(names_max=3)
    for group in groups:
        made.note(group)
    return made


def test_a_file_of_offsets_voids_what_was_deleted_after_it_was_begun() -> None:
    groups = noted("a", "b", "a")
    assert groups.after(0) == ["b", "a"]
    assert groups.after(2) == ["a"], "its latest deletion counts"
    groups.written(2)
    assert groups.after(0) == ["b", "a"], "the version before knows nothing of either"
    groups.written(3)
    assert groups.after(0) == ["a"]
    groups.written(3)
    assert groups.after(0) == []


def test_the_file_that_was_read_is_the_version_before_the_next_one() -> None:
    groups = DeletedGroups()
    groups.load(noted("a", "b").to_document())
    groups.expect(1)
    groups.written(2)
    assert groups.after(0) == ["b"]


def test_notes_come_back_from_the_file_of_groups_and_numbers_go_on() -> None:
    groups = DeletedGroups()
    groups.load(noted("a", "b").to_document())
    groups.expect(7)  # Says the file of offsets.
    groups.note("c")
    assert (groups.after(0), groups.after(7)) == (["a", "b", "c"], ["c"])


def test_a_file_of_groups_of_another_broker_has_no_notes_and_gets_none_before_a_deletion() -> None:
    groups = DeletedGroups()
    groups.load({"subscriptionGroupTable": {}})
    assert groups.to_document() == {}


def test_notes_are_full_at_their_limit() -> None:
    groups = noted("a", "b")
    assert not groups.is_full
    groups.note("c")
    assert groups.is_full


@pytest.mark.parametrize("field", ["groupDeletions", "deletedGroups"])
def test_notes_of_another_form_are_refused_with_what_to_do(field: str) -> None:
    with pytest.raises(CorruptRecord, match="remove both fields to do without them"):
        DeletedGroups().load({field: "x"})
