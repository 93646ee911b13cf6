"""Row C2: messages found by key, by unique key and by time, over several index files, from a broker
that is stopped cleanly, killed, and killed with its index lost.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from engine.admin import Admin
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.message import MessageExt
from engine.runtime import system_runtime
from tests.integration.broker.cluster import TOPIC, RawClient, broker_config, cluster, messages
from tests.integration.client.cluster_users import client_config
from tests.integration.telemetry.killable_engine import KillableEngine

SMALL = ("--set", "maxHashSlotNum=10", "--set", "maxIndexNum=50", "--no-telemetry")
COUNT = 60  # Three entries each, 49 to a file.


async def write(client: RawClient) -> None:
    for number in range(COUNT):
        sent = await client.send(
            b"%d" % number, KEYS=f"order-{number} parity-{number % 2}", UNIQ_KEY=f"UNIQUE{number}"
        )
        assert sent.code == ResponseCode.SUCCESS


async def find(
    client: RawClient, key: str, *, unique: bool = False, begin_ms: int = 0, end_ms: int = 1 << 60
) -> list[MessageExt]:
    answer = await client.ask(
        RequestCode.QUERY_MESSAGE,
        topic=TOPIC,
        key=key,
        maxNum=32,
        beginTimestamp=begin_ms,
        endTimestamp=end_ms,
        **({"_UNIQUE_KEY_QUERY": "true"} if unique else {}),
    )
    return messages(answer) if answer.code == ResponseCode.SUCCESS else []


async def check(client: RawClient) -> None:
    for number in (0, 17, 31, COUNT - 1):
        for key, unique in ((f"order-{number}", False), (f"UNIQUE{number}", True)):
            (found,) = await find(client, key, unique=unique)
            assert found.body == b"%d" % number
    even = await find(client, "parity-0")
    assert [int(message.body) for message in even] == list(range(0, COUNT, 2))
    stored_ms = even[0].store_timestamp_ms
    assert await find(client, "parity-0", end_ms=stored_ms - 2000) == []
    assert len(await find(client, "parity-0", begin_ms=stored_ms - 2000)) == COUNT // 2
    assert await find(client, "order-60") == []


async def test_as_many_as_asked_for_are_found_by_key_up_to_64_and_a_cut_answer_says_so(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        for number in range(70):
            sent = await client.send(b"%d" % number, KEYS="often", UNIQ_KEY="ONE")
            assert sent.code == ResponseCode.SUCCESS

        async def ask(
            key: str, max_num: int, *, unique: bool = False, end_ms: int = 1 << 60
        ) -> tuple[list[int], bool]:
            answer = await client.ask(
                RequestCode.QUERY_MESSAGE,
                topic=TOPIC,
                key=key,
                maxNum=max_num,
                beginTimestamp=0,
                endTimestamp=end_ms,
                **({"_UNIQUE_KEY_QUERY": "true"} if unique else {}),
            )
            assert answer.code == ResponseCode.SUCCESS
            is_cut = answer.fields.get("moreExist") == "true"
            assert is_cut == ("there may be more" in (answer.remark or ""))
            return [int(message.body) for message in messages(answer)], is_cut

        assert await ask("often", 40) == (list(range(30, 70)), True)
        assert await ask("often", 64) == (list(range(6, 70)), True)
        assert await ask("often", 1000) == (list(range(6, 70)), True)
        assert await ask("often", 0) == ([69], True)
        assert await ask("ONE", 1, unique=True) == (list(range(38, 70)), True)
        for _ in range(64):
            await client.send(b"0", KEYS="seldom")
        assert await ask("seldom", 64) == ([0] * 64, False)
        assert await ask("seldom", 10) == ([0] * 10, True)
        async with Admin(system_runtime(), client_config(running.name_server_address)) as admin:
            found = await admin.messages.query(TOPIC, "often")
            assert (len(found), found.is_cut) == (64, True)
            seldom = await admin.messages.query(TOPIC, "seldom")
            assert (len(seldom), seldom.is_cut) == (64, False)


@pytest.mark.parametrize(
    ("number", "lost"),
    [
        pytest.param(signal.SIGTERM, False, id="clean stop"),
        pytest.param(signal.SIGKILL, False, id="kill -9"),
        pytest.param(signal.SIGKILL, True, id="kill -9, index lost"),
    ],
)
async def test_keys_are_found_before_and_after(
    tmp_path: Path, number: signal.Signals, lost: bool
) -> None:
    engine = KillableEngine(tmp_path)
    await engine.start(*SMALL)
    client = RawClient(engine.broker)
    await write(client)
    await check(client)
    await client.close()
    assert len(list((engine.store / "index").iterdir())) >= 3, "the index has rolled"
    await engine.end(number)
    if lost:
        shutil.rmtree(engine.store / "index")
    await engine.start(*SMALL)
    client = RawClient(engine.broker)
    await check(client)
    await client.close()
    await engine.end(signal.SIGTERM)
