"""Row C10: the profiles of two masters with a slave each start, replicate, and mean every key."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.ports import free_broker_port
from engine.protocol.bodies_admin import HaRuntimeInfo
from engine.protocol.codes import RequestCode, ResponseCode
from tests.integration.broker.cluster import TOPIC, RawClient
from tests.integration.broker.processes import party, talk
from tests.integration.client.cluster_users import eventually

PROFILES = Path(__file__).parents[3] / "engine" / "profiles"
SMALL = ("--set", "mappedFileSizeCommitLog=1048576", "--set", "maxIndexNum=1000")


@pytest.mark.parametrize("profile", ["2m-2s-sync", "2m-2s-async"])
@pytest.mark.parametrize("letter", ["a", "b"])
def test_a_master_and_its_slave_of_a_profile_replicate(
    tmp_path: Path, profile: str, letter: str
) -> None:
    log = tmp_path / "log"

    async def followed(client: RawClient) -> None:
        async def has_all() -> bool:
            answer = await client.ask(RequestCode.GET_BROKER_HA_STATUS)
            status = HaRuntimeInfo.decode(answer.body)
            ends = [one.slave_ack_offset for one in status.ha_connection_info]
            return ends == [status.master_commit_log_max_offset]

        await eventually(has_all, "the slave has all of the log")

    async def send(client: RawClient) -> None:
        assert (await client.make_topic(TOPIC)).code == ResponseCode.SUCCESS
        for number in range(5):
            answer = await client.send(b"%d" % number)
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    with party(log, "namesrv", "--port", "0") as names:

        def options(name: str) -> list[str]:
            file = PROFILES / profile / f"{name}.properties"
            return [
                *("broker", "-c", str(file), "--store", str(tmp_path / name), *SMALL),
                *("--port", "0", "--namesrv", names.address),
            ]

        ha_port = ("--set", f"haListenPort={free_broker_port()}")
        master_options = [*options(f"broker-{letter}"), *ha_port]
        slave_options = options(f"broker-{letter}-s")
        with party(log, *master_options) as master, party(log, *slave_options):
            talk(master.address, followed)
            talk(master.address, send)
            talk(master.address, followed)
    assert "is ignored" not in log.read_text(), "each key of the profile means something"


@pytest.mark.parametrize("profile", ["2m-2s-sync", "2m-2s-async"])
@pytest.mark.parametrize("suffix", ["", "-s"])
def test_both_halves_of_a_profile_differ_in_their_name_alone(profile: str, suffix: str) -> None:
    one, other = (
        (PROFILES / profile / f"broker-{letter}{suffix}.properties").read_text() for letter in "ab"
    )
    assert one != other
    assert one.replace("broker-a", "broker-b") == other
