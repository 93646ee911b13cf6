"""Which address of a broker is the master: only a known one changes its role."""

from __future__ import annotations

from engine.observer.roles_seen import ADDRESSES_KEPT_MAX, CHANGES_TOLD_MAX, RolesSeen

A, B = "10.0.0.1:10911", "10.0.0.2:10911"


Told = tuple[str | None, str | None]
"""What changed, in words, and where the new master is."""


def changes(*lists: dict[str, int]) -> list[Told | None]:
    """What is reported of each list of the name servers."""
    seen = RolesSeen()
    return [change(seen, roles) for roles in lists]


def change(seen: RolesSeen, roles: dict[str, int]) -> Told | None:
    events = list(seen.change(roles))
    assert [event.kind for event in events] in ([], ["ROLE_CHANGE"])
    return (events[0].detail, events[0].address) if events else None


def test_a_slave_that_becomes_the_master_and_the_master_that_becomes_a_slave_are_one_change() -> (
    None
):
    words = f"{B} is master, was slave 1; {A} is slave 2, was master"
    assert changes({A: 0, B: 1}, {A: 2, B: 0}, {A: 2, B: 0}) == [None, (words, B), None]


def test_a_master_that_steps_down_leaves_none() -> None:
    words = f"{A} is slave 1, was master; none is master"
    assert changes({A: 0, B: 2}, {A: 1, B: 2})[1] == (words, None)


def test_one_that_is_listed_no_more_keeps_its_role_until_it_is_back() -> None:
    assert changes({A: 0, B: 1}, {B: 1}, {}, {B: 0}, {A: 1, B: 0}) == [
        *(None, None, None),
        (f"{B} is master, was slave 1", B),
        (f"{A} is slave 1, was master", None),
    ]


def test_slaves_that_come_go_and_change_their_numbers_change_no_role() -> None:
    assert changes({A: 0}, {A: 0, B: 1}, {A: 0, B: 3}, {A: 0}, {A: 0, B: 1}) == [None] * 5


def test_a_master_at_an_address_that_nobody_knew_has_moved_and_is_no_change() -> None:
    assert changes({A: 0}, {B: 0}) == [None, None]


def test_what_a_life_before_knew_counts() -> None:
    earlier = RolesSeen({A: 0})
    assert change(earlier, {A: 1, B: 0}) == (f"{A} is slave 1, was master", None)
    later = RolesSeen(earlier.known)
    assert change(later, {A: 0, B: 1}) == (
        f"{A} is master, was slave 1; {B} is slave 1, was master",
        A,
    )


def test_addresses_and_words_are_bounded() -> None:
    many = {f"10.0.1.{at}:10911": at for at in range(ADDRESSES_KEPT_MAX + 9)}
    seen = RolesSeen()
    change(seen, many)
    assert len(seen.known) == ADDRESSES_KEPT_MAX
    (changed,) = seen.change(dict.fromkeys(many, 0))
    assert str(changed.detail).count("is master, was") == CHANGES_TOLD_MAX
