"""Row C10: brokers and name servers are configured by RocketMQ's .properties files, and listed
settings change while they run."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from engine.client import Producer, SendStatus
from engine.foundation.java_properties import parse
from engine.protocol.codes import RequestCode, ResponseCode
from engine.runtime import system_runtime
from tests.integration.broker.cluster import TOPIC, RawClient, bodies
from tests.integration.broker.processes import party, refusal, talk
from tests.integration.broker.spooled import spooled
from tests.integration.client.cluster_users import client_config, eventually, text

PROFILE = Path(__file__).parents[3] / "engine" / "profiles" / "2m-noslave"
SMALL = ("--set", "mappedFileSizeCommitLog=1048576", "--set", "maxIndexNum=1000")
FILE = """# Our broker.
brokerClusterName = CityCluster
brokerName : broker-city
brokerId=0
brokerRole=ASYNC_MASTER
flushDiskType=SYNC_FLUSH
! hours kept
fileReservedTime=48
deleteWhen = 03;\\
             04
storePathRootDir={root}
storePathCommitLog={root}-log
listenPort=0
mappedFileSizeCommitLog=1048576
maxIndexNum=1000
autoCreateTopicEnabel=false
sendMessageThreadPoolNums=16
diskMaxUsedSpaceRatio=88
"""


async def settings(client: RawClient, code: int = RequestCode.GET_BROKER_CONFIG) -> dict[str, str]:
    answer = await client.ask(code)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return {one.key: one.value for one in parse(bytes(answer.body).decode())}


async def change(client: RawClient, text: str, code: int = 25) -> tuple[int, str]:
    answer = await client.ask(code, text.encode())
    return answer.code, answer.remark or ""


def picked(values: dict[str, str], *keys: str) -> list[str]:
    return [values[key] for key in keys]


def test_a_broker_starts_from_a_file_and_variables_and_flags_overrule_it(tmp_path: Path) -> None:
    file, log = tmp_path / "broker.conf", tmp_path / "log"
    file.write_text(FILE.format(root=tmp_path / "store"))
    variables = {
        "TIDEMARK_BROKER_FILE_RESERVED_TIME": "24",
        "TIDEMARK_BROKER_DELETE_WHEN": "05",
        "TIDEMARK_BROKER_NO_SUCH": "1",
    }
    flags = ("--set", "deleteWhen=06", "--namesrv", "127.0.0.1:1")
    with party(log, "broker", "-c", str(file), *flags, environment=variables) as broker:
        answer = talk(broker.address, settings)
        assert talk(broker.address, lambda client: client.send(b"kept")).code == 0
        other = refusal("broker", "-c", str(file), "--store", str(tmp_path / "other"))
        assert "store-log is in use by another process" in other
        broker.stop()
    assert [path.name for path in (tmp_path / "store-log").iterdir()] == ["0" * 20]
    assert not (tmp_path / "store" / "commitlog").exists()
    assert picked(answer, "brokerName", "brokerClusterName") == ["broker-city", "CityCluster"]
    assert picked(answer, "flushDiskType", "brokerRole") == ["SYNC_FLUSH", "ASYNC_MASTER"]
    assert picked(answer, "fileReservedTime", "deleteWhen") == ["24", "06"], "variable, then flag"
    assert picked(answer, "diskMaxUsedSpaceRatio") == ["88"], "as in many a file, above the next"
    said = log.read_text()
    assert said.count("autoCreateTopicEnabel is ignored") == 1
    assert "broker.conf, line 16: autoCreateTopicEnabel" in said
    assert "the nearest is autoCreateTopicEnable" in said
    assert said.count("sendMessageThreadPoolNums is ignored") == 1
    assert "TIDEMARK_BROKER_NO_SUCH" in said
    with party(log, "broker", "-c", str(file)) as broker:
        assert talk(broker.address, settings)["deleteWhen"] == "03;04"
        found = talk(broker.address, lambda client: client.pull(0))
        assert bodies(found) == [b"kept"]


def test_a_wrong_value_is_refused_with_its_line_before_anything_is_made(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("# ours\n\nbrokerRole=SLAVE\n")
    said = refusal("broker", "-c", str(file), "--store", str(tmp_path / "s"), "--port", "0")
    assert "brokerRole='SLAVE' is not allowed: a brokerId of 1 or more beside it" in said
    assert f"({file}, line 3)" in said
    assert not (tmp_path / "s").exists()


def test_a_listed_setting_changes_while_running_and_a_restart_keeps_it(tmp_path: Path) -> None:
    file, log = tmp_path / "broker.conf", tmp_path / "log"
    file.write_text(FILE.format(root=tmp_path / "store"))

    async def before(client: RawClient) -> None:
        assert (await client.send(b"x" * 6000)).code == ResponseCode.SUCCESS
        assert await change(client, "maxMessageSize=5000\nfileReservedTime=12\n") == (0, "")
        assert (await client.send(b"x" * 6000)).code == ResponseCode.MESSAGE_ILLEGAL
        for line, code, complaint in (
            ("storePathRootDir=/tmp/else", ResponseCode.NO_PERMISSION, "changeable while running"),
            ("brokerName=other", ResponseCode.NO_PERMISSION, "changeable while running"),
            ("listenPort=1", ResponseCode.NO_PERMISSION, "changeable while running"),
            ("rocketmqHome=/x", ResponseCode.NO_PERMISSION, "changeable while running"),
            ("deleteWhen=05", ResponseCode.NO_PERMISSION, "fixed by --set"),
            ("maxMessageSize=0", ResponseCode.INVALID_PARAMETER, "from 1 to"),
            ("maxMessageSize=lots", ResponseCode.INVALID_PARAMETER, "from 1 to"),
            ("autoCreateTopicEnable=maybe", ResponseCode.INVALID_PARAMETER, "one of true"),
            ("diskSpaceCleanForciblyRatio=95", ResponseCode.INVALID_PARAMETER, "at most diskSpace"),
            ("", ResponseCode.INVALID_PARAMETER, "at least one key"),
            ("fileReservedTime=1\nbrokerIP1=1.1.1.1", ResponseCode.NO_PERMISSION, "brokerIP1"),
        ):
            refused, remark = await change(client, line)
            assert (refused, complaint in remark) == (code, True), (line, remark)
        settings_now = await settings(client)
        assert picked(settings_now, "maxMessageSize", "fileReservedTime") == ["5000", "12"]

    async def after(client: RawClient) -> None:
        assert picked(await settings(client), "maxMessageSize", "deleteWhen") == ["5000", "03;04"]
        assert (await client.send(b"x" * 6000)).code == ResponseCode.MESSAGE_ILLEGAL

    with party(log, "broker", "-c", str(file), "--set", "deleteWhen=06") as broker:
        talk(broker.address, before)
        broker.kill()
    changed = FILE.format(root=tmp_path / "store").replace("Time=48", "Time=12")
    assert file.read_text() == f"{changed}maxMessageSize=5000\n", "the rest is as it was"
    assert file.stat().st_mode & 0o077 == 0, "a setting may be a secret"
    with party(log, "broker", "-c", str(file)) as broker:
        talk(broker.address, after)


def test_a_broker_without_a_file_keeps_its_changes_in_its_store(tmp_path: Path) -> None:
    store, log = tmp_path / "store", tmp_path / "log"
    options = ("broker", "--store", str(store), "--port", "0", *SMALL)

    async def before(client: RawClient) -> None:
        assert (await change(client, "autoCreateTopicEnable=false"))[0] == ResponseCode.SUCCESS
        assert (await client.send(topic="unheard")).code == ResponseCode.TOPIC_NOT_EXIST

    async def after(client: RawClient) -> None:
        assert (await client.send(topic="unheard")).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await change(client, "autoCreateTopicEnable=true"))[0] == ResponseCode.SUCCESS
        assert (await client.send(topic="unheard")).code == ResponseCode.SUCCESS

    with party(log, *options) as broker:
        talk(broker.address, before)
        broker.kill()
    with party(log, *options) as broker:
        talk(broker.address, after)


@pytest.mark.parametrize("damage", ["deleted", "cut in half", "deleted with its copy"])
def test_settings_kept_in_the_store_survive_their_file_or_a_start_says_so(
    tmp_path: Path, damage: str
) -> None:
    store, log = tmp_path / "store", tmp_path / "log"
    file = store / "config" / "broker.properties"
    options = ("broker", "--store", str(store), "--port", "0", *SMALL)
    keys = ("fileReservedTime", "maxMessageSize")

    async def keep(client: RawClient) -> None:
        assert await change(client, "fileReservedTime=240\nmaxMessageSize=12345\n") == (0, "")

    with party(log, *options) as broker:
        talk(broker.address, keep)
        broker.stop()
    assert "DAMAGED_FILE" not in log.read_text()
    if damage == "cut in half":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    else:
        file.unlink()
    if damage == "deleted with its copy":
        file.with_name("broker.properties.bak").unlink()
    with party(log, *options) as broker:
        answer = picked(talk(broker.address, settings), *keys)
        broker.stop()
    rows = [row["detail"] for row in spooled(store, "lifecycle") if row["kind"] == "DAMAGED_FILE"]
    if damage == "deleted with its copy":
        assert answer == ["72", "4194304"]
        said = f"{file} and its .bak are gone: settings that were changed while running are those"
    else:
        assert answer == ["240", "12345"]
        said = f"read {file}.bak instead"
    assert said in log.read_text()
    assert [said in str(row) for row in rows] == [True]
    with party(log, *options) as broker:
        assert picked(talk(broker.address, settings), *keys) == answer
        broker.stop()
    assert log.read_text().count(said) == 1, "it is logged once"


def test_a_broker_without_write_permission_is_routed_as_such_and_refuses(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        party(log, "namesrv", "--port", "0") as names,
        party(
            *(log, "broker", "--store", str(tmp_path / "store"), "--port", "0", *SMALL),
            *("--namesrv", names.address),
        ) as broker,
    ):

        async def perm() -> int:
            names_client = RawClient(names.address)
            try:
                route = await names_client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=TOPIC)
                return int(json.loads(route.body)["queueDatas"][0]["perm"]) if route.body else 0
            finally:
                await names_client.close()

        async def take_and_give(client: RawClient) -> None:
            await client.send(b"before")
            assert (await change(client, "brokerPermission=4"))[0] == ResponseCode.SUCCESS
            assert (await client.send()).code == ResponseCode.NO_PERMISSION
            assert bodies(await client.pull(0)) == [b"before"]

            async def is_reported() -> bool:
                return await perm() == 4

            await eventually(
                is_reported, "the name server routes the topic without write permission"
            )
            assert (await change(client, "brokerPermission=6"))[0] == ResponseCode.SUCCESS
            assert (await client.send()).code == ResponseCode.SUCCESS

        talk(broker.address, take_and_give)


def test_a_name_server_is_configured_asked_and_changed_alike(tmp_path: Path) -> None:
    file, log = tmp_path / "namesrv.conf", tmp_path / "log"
    file.write_text("# names\nlistenPort=0\nscanNotActiveBrokerInterval=4000\nclusterTest=true\n")
    get, update = RequestCode.GET_NAMESRV_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG

    async def before(client: RawClient) -> None:
        assert (await settings(client, get))["scanNotActiveBrokerInterval"] == "4000"
        assert (await change(client, "scanNotActiveBrokerInterval=700", update))[0] == 0
        for line in ("kvConfigPath=/tmp/x", "configStorePath=/tmp/x", "listenPort=1"):
            assert (await change(client, line, update))[0] == ResponseCode.NO_PERMISSION
        refused, remark = await change(client, "scanNotActiveBrokerInterval=50", update)
        assert (refused, "from 100 to" in remark) == (ResponseCode.INVALID_PARAMETER, True)

    async def after(client: RawClient) -> None:
        assert (await settings(client, get))["scanNotActiveBrokerInterval"] == "700"

    with party(log, "namesrv", "-c", str(file)) as names:
        talk(names.address, before)
        names.kill()
    assert "clusterTest is ignored" in log.read_text()
    with party(log, "namesrv", "-c", str(file)) as names:
        talk(names.address, after)

    async def kept_nowhere(client: RawClient) -> None:
        refused, remark = await change(client, "scanNotActiveBrokerInterval=700", update)
        assert (refused, "no file to keep it in" in remark) == (ResponseCode.NO_PERMISSION, True)

    with party(log, "namesrv", "--port", "0") as names:
        talk(names.address, kept_nowhere)


async def brokers_sent_to(names: str, count: int) -> list[str]:
    """Where each of so many messages went."""
    producer = Producer(system_runtime(), client_config(names), "profile_p")
    await producer.start()
    try:
        brokers = []
        for number in range(count):
            sent = await producer.send(text("Profile", f"m{number}"))
            assert sent.status is SendStatus.SEND_OK
            brokers.append(sent.queue.broker_name)
        return brokers
    finally:
        await producer.stop()


def test_two_masters_without_slaves_a_client_goes_on_when_one_stops(tmp_path: Path) -> None:
    log = tmp_path / "log"

    with party(log, "namesrv", "--port", "0") as names:

        def options(letter: str) -> list[str]:
            file = PROFILE / f"broker-{letter}.properties"
            store = tmp_path / letter
            return [
                *("broker", "-c", str(file), "--store", str(store), "--port", "0", *SMALL),
                *("--namesrv", names.address),
            ]

        with party(log, *options("a")) as one, party(log, *options("b")) as other:

            async def make(client: RawClient) -> None:
                made = await client.ask(
                    RequestCode.UPDATE_AND_CREATE_TOPIC,
                    topic="Profile",
                    readQueueNums=2,
                    writeQueueNums=2,
                    defaultTopic="TBW102",
                    perm=6,
                    topicFilterType="SINGLE_TAG",
                    topicSysFlag=0,
                    order=False,
                )
                assert made.code == ResponseCode.SUCCESS

            async def both_known(client: RawClient) -> None:
                async def known() -> bool:
                    route = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Profile")
                    return route.code == 0 and len(json.loads(route.body)["queueDatas"]) == 2

                await eventually(known, "both masters have the topic")

            talk(one.address, make)
            talk(other.address, make)
            talk(names.address, both_known)
            both = asyncio.run(brokers_sent_to(names.address, 8))
            assert sorted(dict.fromkeys(both)) == ["broker-a", "broker-b"]
            cluster = talk(
                names.address, lambda client: client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
            )
            table = json.loads(cluster.body)["clusterAddrTable"]
            assert sorted(table["DefaultCluster"]) == ["broker-a", "broker-b"]
            other.kill()
            went_on = asyncio.run(brokers_sent_to(names.address, 8))
            assert went_on == ["broker-a"] * 8
            with party(log, *options("b")) as back:
                kept = talk(
                    back.address, lambda client: client.pull(0, topic="Profile", queue_id=0)
                )
                assert len(bodies(kept)) == both.count("broker-b") // 2
    assert "is ignored" not in log.read_text(), "each key of the profile means something"
