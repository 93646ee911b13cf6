"""The six strategies against results of the Java client, queue by queue
(tests/cases/allocate_cases.json).

Feature rows: B5.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.client.consuming.allocation import (
    AllocationStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
)
from engine.foundation.errors import ConfigError
from engine.protocol.message import MessageQueue

CASES: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "cases" / "allocate_cases.json").read_text()
)


def queues_of(topic: str, names: list[str]) -> list[MessageQueue]:
    """`broker:queueId` texts as queues."""
    parts = (name.rsplit(":", 1) for name in names)
    return [MessageQueue(topic, broker, int(queue_id)) for broker, queue_id in parts]


def check(
    strategy: AllocationStrategy, case: dict[str, Any], expected: dict[str, list[str]]
) -> None:
    queues = queues_of(case["topic"], case["mqAll"])
    assert set(expected) == set(case["cidAll"])
    for client_id, names in expected.items():
        got = strategy.allocate(client_id, queues, case["cidAll"])
        assert got == queues_of(case["topic"], names), f"{strategy.name} for {client_id}"


@pytest.mark.parametrize("case", CASES["cases"])
def test_average_circle_and_consistent_hash_give_the_java_clients_queues(
    case: dict[str, Any],
) -> None:
    check(Averagely(), case, case["AVG"])
    check(AveragelyByCircle(), case, case["AVG_BY_CIRCLE"])
    ring = case["CONSISTENT_HASH"]
    check(ConsistentHash(ring["virtualNodeCnt"]), case, ring["result"])


@pytest.mark.parametrize("case", CASES["machine_room"])
def test_machine_room_gives_the_java_clients_queues(case: dict[str, Any]) -> None:
    check(ByMachineRoom(frozenset(case["consumeridcs"])), case, case["MACHINE_ROOM"])


@pytest.mark.parametrize("case", CASES["machine_room_nearby"])
def test_machine_room_nearby_gives_the_java_clients_queues(case: dict[str, Any]) -> None:
    for inner in (Averagely(), AveragelyByCircle()):
        strategy = MachineRoomNearby(inner)
        check(strategy, case, case[strategy.name])


@pytest.mark.parametrize("case", CASES["argument_checks"])
def test_empty_arguments_are_refused_and_a_stranger_gets_nothing(case: dict[str, Any]) -> None:
    queues = [MessageQueue("T", "broker-a", i) for i in range(case["mqAllSize"] or 0)]
    members = case["cidAll"] or []
    for strategy in (Averagely(), AveragelyByCircle(), ConsistentHash()):
        if case["result"].startswith("error"):
            with pytest.raises(ConfigError):
                strategy.allocate(case["currentCID"] or "", queues, members)
        else:
            assert case["result"] == "list:0"
            assert strategy.allocate(case["currentCID"], queues, members) == []


def test_by_config_answers_its_list_whatever_it_is_asked() -> None:
    configured = (MessageQueue("T", "b", 3), MessageQueue("T", "a", 1))
    assert ByConfig(configured).allocate("", [], []) == list(configured)


def test_names_are_those_that_rocketmqs_tools_show() -> None:
    shown = [
        Averagely().name,
        AveragelyByCircle().name,
        ByConfig(()).name,
        ByMachineRoom(frozenset()).name,
        MachineRoomNearby(Averagely()).name,
        ConsistentHash().name,
    ]
    assert shown == [
        *("AVG", "AVG_BY_CIRCLE", "CONFIG", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY-AVG"),
        "CONSISTENT_HASH",
    ]


def test_a_name_without_a_room_is_refused() -> None:
    with pytest.raises(ConfigError, match="machine room"):
        MachineRoomNearby(Averagely()).allocate("-c", [MessageQueue("T", "idc1-a", 0)], ["-c"])
