"""Who is in the routes, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.foundation.errors import RequestRefused
from engine.namesrv.routes import Registration, Routes
from engine.protocol.bodies import DataVersion, QueueData, TopicConfig
from tests.steps import outcome

MASTER = Registration("c1", "broker-a", 0, "10.0.0.1:10911", "10.0.0.1:10912")
SLAVE = Registration("c1", "broker-a", 1, "10.0.0.2:10911", "10.0.0.2:10912")
OTHER = Registration("c1", "broker-b", 0, "10.0.0.3:10911", "10.0.0.3:10912")
ORDERS = {"orders": TopicConfig("orders", 4, 4, 6)}
FIRST, SECOND = DataVersion(0, 1, 1), DataVersion(0, 1, 2)


def register(
    routes: Routes,
    registration: Registration = MASTER,
    topics: dict[str, TopicConfig] = ORDERS,
    *,
    version: DataVersion = FIRST,
    connection: object = "connection",
    now_ms: int = 0,
) -> object:
    return routes.register(registration, topics, version, connection=connection, now_ms=now_ms)


def addresses(routes: Routes, topic: str = "orders") -> dict[str, dict[int, str]]:
    route = routes.route(topic)
    return (
        {} if route is None else {one.broker_name: one.broker_addrs for one in route.broker_datas}
    )


def test_a_registered_master_serves_its_topics() -> None:
    routes = Routes()
    register(routes)
    route = routes.route("orders")
    assert route is not None
    (queues,) = route.queue_datas
    assert (queues.broker_name, queues.read_queue_nums, queues.perm) == ("broker-a", 4, 6)
    assert addresses(routes) == {"broker-a": {0: "10.0.0.1:10911"}}
    assert outcome(routes.topics()) == ["orders"]


def test_an_unknown_topic_has_no_route() -> None:
    assert Routes().route("orders") is None


def test_a_slave_is_an_address_of_its_master_and_gets_its_address() -> None:
    routes = Routes()
    register(routes)
    master = register(routes, SLAVE, {})
    assert master is not None
    assert master.registration == MASTER  # type: ignore[attr-defined]
    assert addresses(routes) == {"broker-a": {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}}


def test_a_topic_of_two_brokers_names_both() -> None:
    routes = Routes()
    register(routes, OTHER)
    register(routes, MASTER)
    assert list(addresses(routes)) == ["broker-a", "broker-b"]
    assert routes.cluster_info().cluster_addr_table == {"c1": ["broker-a", "broker-b"]}


def test_a_silent_broker_leaves_after_its_time_and_takes_its_topics_along() -> None:
    routes = Routes()
    register(routes, now_ms=1000)
    assert routes.expire(1000 + 120_000) == []
    assert routes.expire(1000 + 120_001) == ["10.0.0.1:10911"]
    assert routes.route("orders") is None
    assert outcome(routes.topics()) == []


def test_a_broker_may_name_its_own_time() -> None:
    routes = Routes()
    quick = Registration("c1", "broker-a", 0, "10.0.0.1:10911", "", expiry_ms=500)
    register(routes, quick, now_ms=0)
    register(routes, quick, now_ms=400)
    assert routes.expire(900) == []
    assert routes.expire(901) == ["10.0.0.1:10911"]


def test_a_lost_connection_removes_the_broker_that_registered_on_it() -> None:
    routes = Routes()
    register(routes, MASTER, connection="first")
    register(routes, OTHER, connection="second")
    assert routes.lost("first") == ["10.0.0.1:10911"]
    assert list(addresses(routes)) == ["broker-b"]


def test_a_connection_lost_after_the_broker_came_back_on_another_changes_nothing() -> None:
    routes = Routes()
    register(routes, connection="old")
    register(routes, connection="new")
    assert routes.lost("old") == []
    assert list(addresses(routes)) == ["broker-a"]


def test_a_farewell_removes_the_address_and_keeps_the_slave() -> None:
    routes = Routes()
    register(routes)
    register(routes, SLAVE, {})
    routes.unregister("broker-a", 0, "10.0.0.1:10911")
    assert addresses(routes) == {"broker-a": {1: "10.0.0.2:10911"}}


def test_a_broker_at_a_new_address_is_not_removed_by_its_old_ones_expiry() -> None:
    routes = Routes()
    register(routes, now_ms=0)
    moved = Registration("c1", "broker-a", 0, "10.0.0.9:10911", "")
    register(routes, moved, now_ms=100_000)
    assert routes.expire(130_000) == []
    assert addresses(routes) == {"broker-a": {0: "10.0.0.9:10911"}}


def test_a_slave_that_became_master_leaves_its_old_place() -> None:
    routes = Routes()
    register(routes, SLAVE, {})
    register(routes, Registration("c1", "broker-a", 0, SLAVE.address, ""))
    assert addresses(routes) == {"broker-a": {0: "10.0.0.2:10911"}}


OLD_TERM, NEW_TERM = DataVersion(1, 9, 900), DataVersion(2, 1, 1)
ELSEWHERE = replace(MASTER, address="10.0.0.9:10911")


def test_a_former_master_that_wakes_is_passed_over_and_leaves_the_routes() -> None:
    routes = Routes()
    register(routes, MASTER, version=OLD_TERM)
    register(routes, ELSEWHERE, version=NEW_TERM)
    assert routes.is_outdated(MASTER, OLD_TERM)
    assert addresses(routes) == {"broker-a": {0: ELSEWHERE.address}}
    assert routes.data_version(MASTER.address) is None
    assert not routes.is_outdated(ELSEWHERE, NEW_TERM), "it is known by its own address"


def test_a_former_master_that_claims_its_place_from_where_it_is_a_slave_leaves_that_too() -> None:
    routes = Routes()
    register(routes, ELSEWHERE, version=NEW_TERM)
    register(routes, replace(MASTER, broker_id=1), {}, version=NEW_TERM)
    assert routes.is_outdated(MASTER, OLD_TERM)
    assert addresses(routes) == {"broker-a": {0: ELSEWHERE.address}}


def test_a_master_of_the_same_term_or_a_greater_one_takes_the_place() -> None:
    for version in (OLD_TERM, NEW_TERM):
        routes = Routes()
        register(routes, MASTER, version=OLD_TERM)
        assert not routes.is_outdated(ELSEWHERE, version)


def test_a_slave_of_an_older_term_under_another_id_is_no_rival() -> None:
    routes = Routes()
    register(routes, ELSEWHERE, version=NEW_TERM)
    assert not routes.is_outdated(SLAVE, OLD_TERM)


def test_changed_topics_are_taken_over_with_a_new_version_only() -> None:
    routes = Routes()
    register(routes)
    wider = {"orders": TopicConfig("orders", 8, 8, 6)}
    register(routes, topics=wider)
    unchanged = routes.route("orders")
    register(routes, topics=wider, version=SECOND)
    changed = routes.route("orders")
    assert unchanged is not None
    assert changed is not None
    assert unchanged.queue_datas[0].read_queue_nums == 4
    assert changed.queue_datas[0].read_queue_nums == 8


def test_a_wiped_permission_stays_wiped_until_the_topics_change() -> None:
    routes = Routes()
    register(routes)
    assert routes.set_writable("broker-a", writable=False) == 1
    register(routes)
    wiped = routes.route("orders")
    assert wiped is not None
    assert wiped.queue_datas[0].perm == 4
    assert routes.set_writable("broker-a", writable=True) == 1
    assert wiped.queue_datas[0].perm == 6


def test_a_deleted_topic_is_gone_and_the_others_stay() -> None:
    routes = Routes()
    register(routes, topics={**ORDERS, "payments": TopicConfig("payments", 1, 1, 6)})
    routes.delete_topic("orders")
    assert outcome(routes.topics()) == ["payments"]


def test_topics_of_a_cluster_are_those_its_brokers_serve() -> None:
    routes = Routes()
    register(routes)
    away = Registration("c2", "broker-z", 0, "10.0.0.8:10911", "")
    register(routes, away, {"payments": TopicConfig("payments", 1, 1, 6)})
    assert outcome(routes.topics_of_cluster("c1")) == ["orders"]
    assert outcome(routes.topics_of_cluster("c2")) == ["payments"]


def test_a_known_broker_shows_its_version_and_a_sign_of_life() -> None:
    routes = Routes()
    register(routes, now_ms=0)
    assert routes.data_version("10.0.0.1:10911") == FIRST
    assert routes.data_version("10.9.9.9:1") is None
    routes.touch("10.0.0.1:10911", 100_000)
    assert routes.expire(130_000) == []


def test_topics_are_found_by_their_unit_marks() -> None:
    """Row C1: unit topics, as tools list them."""
    routes = Routes()
    marks = {"plain": 0, "unit": 1, "shared": 2, "both": 3}
    topics = {name: TopicConfig(name, topic_sys_flag=flag) for name, flag in marks.items()}
    register(routes, topics=topics)
    assert outcome(routes.topics_with(unit=True, unit_sub=None)) == ["both", "unit"]
    assert outcome(routes.topics_with(unit=None, unit_sub=True)) == ["both", "shared"]
    assert outcome(routes.topics_with(unit=False, unit_sub=True)) == ["shared"]


def test_clusters_and_broker_names_are_the_system_topics() -> None:
    routes = Routes()
    assert routes.system_topics() == ([], None)
    register(routes)
    assert routes.system_topics() == (["c1", "broker-a"], "10.0.0.1:10911")


def test_a_single_topic_counts_only_from_a_broker_that_is_registered() -> None:
    routes = Routes()
    register(routes)
    queues = [QueueData("broker-a", 2, 2, 6), QueueData("stranger", 2, 2, 6)]
    routes.add_queues("late", queues)
    assert addresses(routes, "late") == {"broker-a": {0: "10.0.0.1:10911"}}
    routes.add_queues("nowhere", queues[1:])
    assert routes.route("nowhere") is None


def test_a_broker_that_has_another_name_now_serves_nothing_under_its_former_one() -> None:
    routes = Routes()
    register(routes)
    renamed = replace(MASTER, broker_name="broker-z")
    register(routes, renamed)
    assert addresses(routes) == {"broker-z": {0: MASTER.address}}
    assert list(routes.cluster_info().broker_addr_table) == ["broker-z"]
    routes.lost("connection")
    assert outcome(routes.topics()) == []
    assert routes.cluster_info().broker_addr_table == {}


def test_no_more_brokers_are_kept_than_one_answer_can_name() -> None:
    routes = Routes(brokers_max=2)
    for registration in (MASTER, SLAVE):
        routes.check_room(registration.address)
        register(routes, registration)
    routes.check_room(MASTER.address)  # Who is known registers again.
    with pytest.raises(RequestRefused, match=r"10\.0\.0\.3:10911 is one too many"):
        routes.check_room(OTHER.address)


@pytest.mark.parametrize(("by", "is_kept"), [("connection", True), ("another", False)])
def test_a_question_that_others_may_ask_is_a_sign_of_life_on_the_broker_s_connection_alone(
    by: str, is_kept: bool
) -> None:
    routes = Routes()
    register(routes)
    routes.touch(MASTER.address, 100_000, by=by)
    routes.expire(150_000)
    assert bool(addresses(routes)) is is_kept
