"""Burrow's notifier and its cache of answers, over time."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from engine.foundation.errors import ConfigError
from pipelines.rules.burrow.evaluator import Status
from pipelines.rules.burrow.notifier import ModuleSettings, Notifier, Sending
from pipelines.rules.burrow.over_time import EvaluatorSettings
from pipelines.rules.burrow.storage import Storage, StorageSettings

ORDERS = ("shop", "orders")
BILLS = ("shop", "bills")
OK, WARN, ERR, NOTFOUND = Status.OK, Status.WARN, Status.ERR, Status.NOTFOUND


def notifier(*modules: ModuleSettings) -> Notifier:
    """Watches the two groups; ids are id1, id2, ..."""
    numbers = count(1)
    made = Notifier(modules, new_id=lambda: f"id{next(numbers)}")
    made.refresh([ORDERS, BILLS], last_evaluated_ms=0)
    return made


def sent_for(
    watching: Notifier, *evaluations: tuple[int, Status]
) -> list[tuple[str, str, str | None]]:
    """Second, what is sent and the incident, of each notice about ORDERS."""
    return [
        (f"{second} s", notice.sending.value, notice.incident_id)
        for second, status in evaluations
        for notice in watching.evaluated(ORDERS, status, now_ms=second * 1000)
    ]


def test_an_incident_has_one_id_from_the_first_bad_status_to_the_first_ok() -> None:
    watching = notifier(ModuleSettings("mail", interval_s=10, send_close=True))
    assert sent_for(
        watching, (0, WARN), (20, ERR), (40, OK), (60, OK), (80, WARN), (100, NOTFOUND), (120, OK)
    ) == [
        ("0 s", "open", "id1"),
        ("20 s", "open", "id1"),
        ("40 s", "close", "id1"),
        ("80 s", "open", "id2"),
        ("120 s", "close", "id2"),
    ]


def test_a_module_is_silent_until_more_than_its_send_interval_has_gone() -> None:
    watching = notifier(ModuleSettings("mail", interval_s=10, send_interval_s=60))
    evaluations = [(second, WARN) for second in (0, 10, 60, 61, 120, 122)]
    assert [when for when, _, _ in sent_for(watching, *evaluations)] == ["0 s", "61 s", "122 s"]


def test_without_a_send_interval_it_is_the_interval() -> None:
    assert ModuleSettings("mail", interval_s=45).pause_ms == 45_000
    assert ModuleSettings("mail", interval_s=45, send_interval_s=0).pause_ms == 0


def test_a_close_lets_the_next_incident_be_notified_at_once() -> None:
    watching = notifier(ModuleSettings("mail", send_interval_s=3600, send_close=True))
    sent = sent_for(watching, (0, WARN), (10, OK), (20, WARN))
    assert [what for _, what, _ in sent] == ["open", "close", "open"]


def test_without_send_close_the_next_incident_waits_for_the_send_interval() -> None:
    watching = notifier(ModuleSettings("mail", send_interval_s=3600))
    assert [when for when, _, _ in sent_for(watching, (0, WARN), (10, OK), (20, ERR))] == ["0 s"]


def test_each_module_has_its_own_threshold_and_memory() -> None:
    watching = notifier(
        ModuleSettings("mail", threshold=WARN, send_once=True),
        ModuleSettings("pager", threshold=ERR, send_close=True),
    )
    sent = [
        (notice.module, notice.sending)
        for second, status in enumerate([WARN, ERR, OK])
        for notice in watching.evaluated(ORDERS, status, now_ms=second * 1000)
    ]
    assert sent == [
        ("mail", Sending.OPEN),
        ("pager", Sending.OPEN),
        ("pager", Sending.CLOSE),
    ]


def test_groups_are_due_once_per_shortest_interval() -> None:
    watching = notifier(ModuleSettings("mail", interval_s=60), ModuleSettings("hook", interval_s=5))
    assert watching.take_due(5_000) == []
    assert watching.take_due(5_001) == [ORDERS, BILLS]
    assert watching.take_due(10_001) == []
    assert watching.take_due(10_002) == [ORDERS, BILLS]


def test_without_modules_nothing_is_due_for_years() -> None:
    assert notifier().take_due(300_000_000_000) == []


def test_a_group_that_disappears_takes_its_open_incident_with_it() -> None:
    watching = notifier(ModuleSettings("mail", send_close=True))
    sent_for(watching, (0, WARN))
    watching.refresh([BILLS], last_evaluated_ms=0)
    assert sent_for(watching, (10, OK)) == []
    assert watching.incident(ORDERS) is None
    watching.refresh([ORDERS, BILLS], last_evaluated_ms=0)
    assert sent_for(watching, (20, OK), (30, WARN)) == [("30 s", "open", "id2")]


def test_a_group_that_stays_keeps_its_incident_over_a_refresh() -> None:
    watching = notifier(ModuleSettings("mail", send_close=True))
    sent_for(watching, (0, WARN))
    watching.refresh([ORDERS], last_evaluated_ms=7)
    assert watching.incident(ORDERS) == ("id1", 0)


def test_owners_are_returned_and_cleared_and_go_with_their_topic() -> None:
    storage = Storage()
    storage.set_owner("orders", "sales", 0, owner="10.0.0.7", client_id="client-1")
    assert storage.owner("orders", "sales", 0) is None, "the topic is not known yet"
    storage.add_end_offset("sales", 1, offset=9, partition_count=2)
    storage.set_owner("orders", "sales", 1, owner="10.0.0.7", client_id="client-1")
    assert storage.owner("orders", "sales", 1) == ("10.0.0.7", "client-1")
    storage.clear_owners("orders")
    assert storage.owner("orders", "sales", 1) is None
    storage.set_owner("orders", "sales", 1, owner="10.0.0.8", client_id="client-2")
    storage.delete_topic("sales")
    assert storage.owner("orders", "sales", 1) is None
    assert storage.groups == ["orders"]
    assert storage.reap({"bills"}) == ["orders"]
    assert storage.groups == []


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        (StorageSettings, {"intervals": 0}),
        (StorageSettings, {"min_distance_s": -1}),
        (StorageSettings, {"expire_group_s": -1}),
        (EvaluatorSettings, {"allowed_lag": -1}),
        (EvaluatorSettings, {"minimum_complete": 1.01}),
        (ModuleSettings, {"name": "mail", "interval_s": -1}),
        (ModuleSettings, {"name": "mail", "send_interval_s": -1}),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: type, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="is not allowed"):
        settings(**wrong)
