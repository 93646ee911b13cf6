"""Accounts and certificates as a user sets them: `--access FILE`, processes, a restart, clients of
ours that sign, `tidemark admin --credentials`; and no secret in anything that is written.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.client import ClientConfig, ConsumerConfig, Producer, ProducerConfig, PushConsumer
from engine.client.consuming.listeners import ConsumeConcurrentlyStatus, ConsumeContext
from engine.client.consuming.start_offset import ConsumeFromWhere
from engine.foundation.errors import TidemarkError
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.message import Message, MessageExt
from engine.remoting.access import read_credentials
from engine.remoting.signing import Credentials
from engine.runtime import ClientTls, system_runtime
from tests.certificates import authority
from tests.integration.broker.cluster import eventually
from tests.integration.broker.guarded import FILE, GUESSER, ROOT, SHOP, Caller
from tests.interop.our_engine import OurEngine, our_engine

TIDEMARK = str(Path(sys.prefix) / "bin" / "tidemark")


def access_file(folder: Path, text: str = FILE) -> Path:
    """The accounts as a file that only its owner reads."""
    path = folder / "access.toml"
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def config(engine: OurEngine, credentials: Credentials, tls: ClientTls | None) -> ClientConfig:
    return ClientConfig(
        namesrv_addresses=(engine.name_server,),
        credentials=credentials,
        tls=tls,
        heartbeat_first_ms=100,
        route_poll_ms=500,
    )


async def send(engine: OurEngine, tls: ClientTls | None, topic: str, body: bytes) -> None:
    """Send as the shop does; raises what the broker refuses."""
    settings = ProducerConfig(retry_times=0)
    producer = Producer(system_runtime(), config(engine, SHOP, tls), "p", producer=settings)
    await producer.start()
    try:
        await producer.send(Message(topic, body))
    finally:
        await producer.stop()


async def consume(engine: OurEngine, tls: ClientTls | None, count: int) -> list[bytes]:
    """What the shop's group reads of orders."""
    bodies: list[bytes] = []

    async def listen(
        messages: list[MessageExt], context: ConsumeContext
    ) -> ConsumeConcurrentlyStatus:
        bodies.extend(message.body for message in messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    settings = ConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = PushConsumer(
        system_runtime(), config(engine, SHOP, tls), "orders-group", consumer=settings
    )
    consumer.subscribe("orders", "*", listen)
    await consumer.start()
    try:
        await eventually(lambda: _has(bodies, count), f"{count} messages, there are {bodies}")
    finally:
        await consumer.stop()
    return bodies


async def _has(bodies: list[bytes], count: int) -> bool:
    return len(bodies) >= count


def admin(engine: OurEngine, credentials: Path | None, *words: str) -> tuple[int, str]:
    """`tidemark admin`, its exit code and everything it said."""
    known_as = [] if credentials is None else ["--credentials", str(credentials)]
    done = subprocess.run(
        [TIDEMARK, "admin", *known_as, *words, "--namesrv", engine.name_server],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_accounts_hold_over_a_restart_and_no_secret_is_written_anywhere(tmp_path: Path) -> None:
    access = access_file(tmp_path)
    as_root = tmp_path / "root.toml"
    as_root.write_text(f'accessKey = "{ROOT.access_key}"\nsecretKey = "{ROOT.secret_key}"\n')
    said = ""
    for life, body in enumerate((b"before", b"after")):
        with our_engine(tmp_path / "engine", "--access", str(access)) as engine:
            asyncio.run(one_life(engine, body))
            code, words = admin(engine, as_root, "topic", "list")
            assert (code, "orders" in words) == (0, True), words
            said += words
            code, words = admin(engine, None, "topic", "list")
            assert (code, "not signed" in words) == (1, True), words
            bodies = asyncio.run(consume(engine, None, 1))
            assert bodies == [body], f"life {life}"
    written = [path for path in (tmp_path / "engine").rglob("*") if path.is_file()]
    assert any(path.name == "engine.log" for path in written)
    for path in written:
        assert b"canary" not in path.read_bytes(), path
    assert "canary" not in said


async def one_life(engine: OurEngine, body: bytes) -> None:
    """What the shop may, what it may not, and what a guesser is answered."""
    await send(engine, None, "orders", body)
    with pytest.raises(TidemarkError, match="no PUB permission for topic private"):
        await send(engine, None, "private", b"never")
    guesser = Caller(engine.broker, GUESSER)
    answer = await guesser.ask(RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0)
    assert answer.code == ResponseCode.NO_PERMISSION
    await guesser.close()


def test_with_certificates_everything_is_encrypted_and_plain_text_is_refused(
    tmp_path: Path,
) -> None:
    ca = authority(tmp_path / "ca")
    certificate, key = ca.issue("server")
    tls = (
        f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"\nauthorities = "{ca.certificate}"\n'
        f'clientAuthorities = "{ca.certificate}"\n'
    )
    mine, my_key = ca.issue("client")
    credentials = tmp_path / "client.toml"
    credentials.write_text(
        f'accessKey = "{ROOT.access_key}"\nsecretKey = "{ROOT.secret_key}"\n'
        f'[tls]\nauthorities = "{ca.certificate}"\n'
        f'certificate = "{mine}"\nkey = "{my_key}"\n'
    )
    _, client_tls = read_credentials(credentials.read_text(), str(credentials))
    access = access_file(tmp_path, tls + FILE)
    with our_engine(tmp_path / "engine", "--access", str(access)) as engine:
        asyncio.run(send(engine, client_tls, "orders", b"secret order"))
        assert asyncio.run(consume(engine, client_tls, 1)) == [b"secret order"]
        code, words = admin(engine, credentials, "topic", "list")
        assert (code, "orders" in words) == (0, True), words
        for wrong in (None, ClientTls(str(ca.certificate))):
            with pytest.raises(TidemarkError):
                asyncio.run(send(engine, wrong, "orders", b"never"))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--host", "0.0.0.0", "--allow-remote"], "--allow-remote and accounts"),
        (["--set", "brokerIP1=192.0.2.1", "--access", "FILE"], "--allow-remote and accounts"),
        (["--host", "0.0.0.0", "--allow-remote", "--access", "FILE"], "clients are sent it"),
        (["--access", "OPEN"], "chmod 600"),
        (["--set", "aclEnable=true"], "accounts are given by --access"),
    ],
)
def test_a_start_that_is_not_safe_is_refused_in_one_sentence(
    tmp_path: Path, options: list[str], complaint: str
) -> None:
    path = access_file(tmp_path)
    shared = tmp_path / "shared.toml"
    shared.write_text(FILE)
    shared.chmod(0o644)
    words = [{"FILE": str(path), "OPEN": str(shared)}.get(word, word) for word in options]
    done = subprocess.run(
        [TIDEMARK, "engine", "--store", str(tmp_path / "s"), "--namesrv-port", "0", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": ""},
    )
    assert done.returncode == 1
    assert done.stdout == ""
    [sentence] = done.stderr.splitlines()
    assert complaint in sentence
    assert "canary" not in done.stderr


HELD_PULL = {
    "consumerGroup": "orders-group",
    "topic": "orders",
    "queueId": 0,
    "maxMsgNums": 9,
    "sysFlag": 6,
    "commitOffset": 0,
    "suspendTimeoutMillis": 60_000,
    "subscription": "*",
    "subVersion": 0,
}


async def test_a_pull_that_waits_is_answered_when_its_account_goes(tmp_path: Path) -> None:
    path = access_file(tmp_path)
    with our_engine(tmp_path / "engine", "--access", str(path)) as engine:
        root, shop = Caller(engine.broker, ROOT), Caller(engine.broker, SHOP)
        place = {"topic": "orders", "queueId": 0}
        message = {"producerGroup": "p", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4}
        message |= {**place, "sysFlag": 0, "bornTimestamp": 1, "flag": 0}
        sent = await root.ask(RequestCode.SEND_MESSAGE, b"the shop's", **message)
        assert sent.code == ResponseCode.SUCCESS
        first = await shop.ask(RequestCode.PULL_MESSAGE, **HELD_PULL, queueOffset=0)
        assert first.code == ResponseCode.SUCCESS
        pull = shop.ask(RequestCode.PULL_MESSAGE, **HELD_PULL, queueOffset=1)
        held = asyncio.create_task(pull)

        async def answered() -> int:
            return (await shop.ask(RequestCode.GET_MAX_OFFSET, **place)).code

        assert await answered() == ResponseCode.SUCCESS, "the pull before it waits by now"
        path.write_text(FILE.partition('[[accounts]]\naccessKey = "shop"')[0])

        async def is_removed() -> bool:
            return await answered() == ResponseCode.NO_PERMISSION

        await eventually(is_removed, "the shop has no account any more")
        answer = await asyncio.wait_for(held, 15)
        assert answer.code == ResponseCode.PULL_NOT_FOUND, "it asks again, in vain"
        for caller in (root, shop):
            await caller.close()


async def test_changed_accounts_are_taken_up_and_damaged_ones_refused_without_a_restart(
    tmp_path: Path,
) -> None:
    path = access_file(tmp_path)
    new = Credentials("newcomer", "canary-secret-of-newcomer")
    newcomer = f'''
[[accounts]]
accessKey = "{new.access_key}"
secretKey = "{new.secret_key}"
topicPerms = ["orders=PUB|SUB"]
'''
    with our_engine(tmp_path / "engine", "--access", str(path)) as engine:
        log = tmp_path / "engine" / "engine.log"
        callers = {each: Caller(engine.broker, each) for each in (ROOT, SHOP, new)}

        async def codes() -> list[int]:
            """How the shop and the newcomer are answered, on connections they keep."""
            asked = [
                callers[each].ask(RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0)
                for each in (SHOP, new)
            ]
            return [answer.code for answer in await asyncio.gather(*asked)]

        async def answered(*expected: ResponseCode) -> None:
            async def so() -> bool:
                return await codes() == list(expected)

            await eventually(so, f"answers {expected}")

        async def logged(words: str) -> None:
            async def so() -> bool:
                return words in log.read_text()

            await eventually(so, words)

        await send(engine, None, "orders", b"one")
        await answered(ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION)
        path.write_text(FILE + newcomer)
        await answered(ResponseCode.SUCCESS, ResponseCode.SUCCESS)
        await logged("are in force: added newcomer")
        path.write_text(FILE + newcomer + "[[accounts]\n")
        await logged("accounts stay as they were, for their file is refused")
        assert await codes() == [ResponseCode.SUCCESS, ResponseCode.SUCCESS]
        path.write_text(FILE.partition('[[accounts]]\naccessKey = "shop"')[0] + newcomer)
        await answered(ResponseCode.NO_PERMISSION, ResponseCode.SUCCESS)
        path.chmod(0o604)
        await logged("a file of secrets that others may not read: chmod 600")
        assert await codes() == [ResponseCode.NO_PERMISSION, ResponseCode.SUCCESS]
        path.chmod(0o600)
        for caller in callers.values():
            await caller.close()
        assert "canary" not in log.read_text()
    with our_engine(tmp_path / "engine", "--access", str(path)) as engine:
        again = [Caller(engine.broker, each) for each in (SHOP, new)]
        asked = [each.ask(RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0) for each in again]
        answers = await asyncio.gather(*asked)
        assert [answer.code for answer in answers] == [
            *(ResponseCode.NO_PERMISSION, ResponseCode.SUCCESS)
        ]
        for each in again:
            await each.close()
