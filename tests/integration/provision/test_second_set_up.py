"""A set-up that is done already: nothing is fetched, nothing is installed, no network is asked."""

from __future__ import annotations

from tests.second_set_up import set_up_again


def test_a_second_set_up_needs_no_network_and_says_where_it_is() -> None:
    said = set_up_again("test")
    assert "set-up: ready in" in said
    assert "fetching" not in said
    assert "installing the locked" not in said
