"""Every request code of RocketMQ 5.5, asked of every party: it is served, or it is code 3.

What is not served is listed with its reason, so that a code nobody thought of fails here.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from tests.integration.broker.cluster import GROUP, TOPIC, broker_config, cluster
from tests.integration.client.cluster_users import Seen, consuming, eventually, producing

C = RequestCode

NOT_OF_A_BROKER = {
    "of the name server": (
        *(C.PUT_KV_CONFIG, C.GET_KV_CONFIG, C.DELETE_KV_CONFIG, C.GET_KVLIST_BY_NAMESPACE),
        *(C.REGISTER_BROKER, C.UNREGISTER_BROKER, C.QUERY_DATA_VERSION, C.BROKER_HEARTBEAT),
        *(C.GET_ROUTEINFO_BY_TOPIC, C.GET_BROKER_CLUSTER_INFO, C.GET_TOPICS_BY_CLUSTER),
        *(C.WIPE_WRITE_PERM_OF_BROKER, C.ADD_WRITE_PERM_OF_BROKER),
        *(C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, C.GET_SYSTEM_TOPIC_LIST_FROM_NS),
        *(C.DELETE_TOPIC_IN_NAMESRV, C.REGISTER_TOPIC_IN_NAMESRV),
        *(C.GET_UNIT_TOPIC_LIST, C.GET_HAS_UNIT_SUB_TOPIC_LIST),
        *(C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, C.GET_BROKER_MEMBER_GROUP),
        *(C.UPDATE_NAMESRV_CONFIG, C.GET_NAMESRV_CONFIG),
    ),
    "of a client": (
        *(C.CHECK_TRANSACTION_STATE, C.NOTIFY_CONSUMER_IDS_CHANGED),
        *(C.RESET_CONSUMER_CLIENT_OFFSET, C.GET_CONSUMER_STATUS_FROM_CLIENT),
        C.PUSH_REPLY_MESSAGE_TO_CLIENT,
    ),
    "left over from older versions; RocketMQ 5.5 serves them no more": (
        *(C.QUERY_BROKER_OFFSET, C.GET_TOPIC_CONFIG_LIST, C.GET_TOPIC_NAME_LIST),
        *(C.TRIGGER_DELETE_FILES, C.SUSPEND_CONSUMER, C.RESUME_CONSUMER),
        *(C.RESET_CONSUMER_OFFSET_IN_CONSUMER, C.RESET_CONSUMER_OFFSET_IN_BROKER),
        *(C.ADJUST_CONSUMER_THREAD_POOL, C.WHO_CONSUME_THE_MESSAGE, C.GET_CLIENT_CONFIG),
        *(C.REGISTER_FILTER_SERVER, C.REGISTER_MESSAGE_FILTER_CLASS),
    ),
    "of controllers and of slaves": (
        *(code for code in C if 1001 <= code <= 1018 and code != C.GET_BROKER_EPOCH_CACHE),
        *(C.ADD_BROKER, C.REMOVE_BROKER, C.NOTIFY_MIN_BROKER_ID_CHANGE),
        *(C.EXCHANGE_BROKER_HA_INFO, C.RESET_MASTER_FLUSH_OFFSET),
    ),
    "pop consumption, lite topics and their assignment": (
        *(code for code in C if 200_050 <= code < 720_000),
        C.QUERY_ASSIGNMENT,
    ),
    "static topics": (C.UPDATE_AND_CREATE_STATIC_TOPIC,),
    "RocksDB, tiered reading": (
        *(C.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, C.EXPORT_ROCKSDB_CONFIG_TO_JSON),
        *(C.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, C.REMOVE_COLD_DATA_FLOW_CTR_CONFIG),
        *(C.GET_COLD_DATA_FLOW_CTR_INFO, C.SET_COMMITLOG_READ_MODE, C.SWITCH_TIMER_ENGINE),
    ),
    "what waits by topic, which an entry of the wheel does not say": (C.GET_TIMER_METRICS,),
    "users and rules of a broker of no group are a file, not requests": tuple(
        code for code in C if 3001 <= code <= 3010
    ),
    "no sub-command of mqadmin asks for it": (C.UPDATE_AND_GET_GROUP_FORBIDDEN,),
}
OF_A_NAME_SERVER = {
    *NOT_OF_A_BROKER["of the name server"],
} - {C.GET_BROKER_MEMBER_GROUP}
"""A broker asks for its member group only when slaves may act as masters."""
OF_A_CONSUMER = {
    *(C.NOTIFY_CONSUMER_IDS_CHANGED, C.RESET_CONSUMER_CLIENT_OFFSET),
    *(C.GET_CONSUMER_STATUS_FROM_CLIENT, C.GET_CONSUMER_RUNNING_INFO),
    C.CONSUME_MESSAGE_DIRECTLY,
}
"""Those that brokers ask; transaction checks and replies go to producers."""


def listed(table: dict[str, Iterable[RequestCode]]) -> list[RequestCode]:
    return [code for codes in table.values() for code in codes]


@pytest.fixture(scope="module")
def not_of_a_broker() -> set[RequestCode]:
    codes = listed(NOT_OF_A_BROKER)
    assert len(codes) == len(set(codes)), "a code is listed twice"
    return set(codes)


def names(codes: Iterable[int]) -> list[str]:
    return [f"{int(code)} {RequestCode(code).name}" for code in sorted(codes)]


def refused(answers: dict[RequestCode, RemotingCommand]) -> set[RequestCode]:
    """Codes that were answered as not supported; each answer must name its code."""
    unsupported = {
        code
        for code, answer in answers.items()
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    }
    for code in unsupported:
        assert str(answers[code].remark) == f" request type {int(code)} not supported"
    return unsupported


async def test_a_broker_serves_a_code_or_answers_that_it_does_not(
    tmp_path: Path, not_of_a_broker: set[RequestCode]
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        answers = {code: await client.ask(code) for code in RequestCode}
    not_served = refused(answers)
    forgotten, served = not_served - not_of_a_broker, not_of_a_broker - not_served
    assert not forgotten, f"neither served nor listed above with a reason: {names(forgotten)}"
    assert not served, f"served now, and still listed above: {names(served)}"


async def test_a_name_server_serves_a_code_or_answers_that_it_does_not(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.of_name_server()
        answers = {code: await client.ask(code) for code in RequestCode}
    assert names(set(RequestCode) - refused(answers)) == names(OF_A_NAME_SERVER)


async def test_a_client_serves_a_code_or_answers_that_it_does_not(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        state = running.broker.state
        await running.client().send()
        name_server = running.of_name_server().address
        async with (
            consuming(name_server, GROUP, {TOPIC: Seen()}) as consumer,
            producing(name_server, "producers"),
        ):
            await eventually(lambda: state.groups.of(GROUP), "the consumer is known")
            group = state.groups.of(GROUP)
            assert group is not None
            peer = group.members[consumer.client_id].channel.peer
            answers = {
                code: await peer.invoke(RemotingCommand.request(code, {}), timeout_ms=5000)
                for code in RequestCode
                if code not in (C.NOTIFY_CONSUMER_IDS_CHANGED, C.RESET_CONSUMER_CLIENT_OFFSET)
            }
    served = set(answers) - refused(answers)
    one_way = {C.NOTIFY_CONSUMER_IDS_CHANGED, C.RESET_CONSUMER_CLIENT_OFFSET}
    assert names(served | one_way) == names(OF_A_CONSUMER)
