"""Two clusters of one name: which are one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from engine.observer.observation import stranger


@dataclass(frozen=True)
class Known:
    """As a lake has it."""

    address: str
    name_servers: str
    emitter: str = "c/a/observer"
    broker: str = "a"


MASTERS = {"a": "10.0.0.1:10911"}
OWN = "10.0.0.9:9876;ns.shop:9876"


@pytest.mark.parametrize(
    ("address", "name_servers", "is_one"),
    [
        ("10.0.0.1:10911", "10.9.9.9:9876", True),
        ("10.0.0.2:10911", "ns.shop:9876;other:9876", True),
        ("10.0.0.2:10911", "10.9.9.9:9876", False),
        ("10.0.0.2:10911", "", False),
    ],
)
def test_it_is_one_cluster_where_a_broker_or_a_name_server_is_the_same(
    address: str, name_servers: str, is_one: bool
) -> None:
    assert (stranger([Known(address, name_servers)], OWN, MASTERS) is None) == is_one


@pytest.mark.parametrize("name_server", ["127.0.0.1:9876", "localhost:9876", "[::1]:9876"])
def test_that_both_name_servers_are_on_this_machine_says_nothing(name_server: str) -> None:
    known = Known("10.0.0.2:10911", name_server)
    assert stranger([known], name_server, MASTERS) is known


def test_of_several_one_that_is_the_same_is_enough() -> None:
    others = [Known("10.0.0.2:1", "x:1"), Known("10.0.0.1:10911", "y:1")]
    assert stranger(others, OWN, MASTERS) is None
    assert stranger([], OWN, MASTERS) is None
