"""Texts with line breaks and escape sequences, wherever a client may put one, sent to an engine in
a process of its own: its log keeps one line an event, its answers and `tidemark admin` show nothing
that a terminal would obey.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from engine.foundation.log_lines import TRACEBACK_MARK
from engine.protocol.codes import RequestCode as Code
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.header_fields import RequestHeader
from engine.remoting import RpcClient
from engine.runtime import system_runtime
from tests.interop.our_engine import our_engine

TIDEMARK = str(Path(sys.prefix) / "bin" / "tidemark")
FORGED = "m\n2026-11-22 10:00:00,000 CRITICAL forged\r\x1b[2J\x9b31m\u2028\u202e"
EVENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (INFO|WARNING|ERROR|CRITICAL) .*")
PLAIN: dict[str, str] = {
    **dict(zip("abcdefghij", ("p", "T", "TBW102", "4", "0", "0", "7", "0", "", "0"), strict=True)),
    "topic": "T",
    "consumerGroup": "g",
    "group": "g",
    "producerGroup": "p",
    "queueId": "0",
    "offset": "7",
    "commitLogOffset": "7",
    "commitOffset": "0",
    "queueOffset": "0",
    "maxMsgNums": "1",
    "sysFlag": "0",
    "suspendTimeoutMillis": "0",
    "subVersion": "1",
    "subscription": "*",
    "bornTimestamp": "7",
    "flag": "0",
    "timestamp": "1",
    "key": "k",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "maxNum": "1",
    "properties": "",
    "beginTimestamp": "0",
    "endTimestamp": "9",
    "clientID": "c",
    "delayLevel": "1",
    "tranStateTableOffset": "0",
    "commitOrRollback": "8",
    "msgId": "m",
    "clientId": "c",
    "brokerName": "b",
    "brokerAddr": "127.0.0.1:1",
    "clusterName": "c",
    "brokerId": "0",
    "namespace": "n",
    "value": "v",
    "statsName": "s",
    "statsKey": "k",
    "bname": "b",
}


def names_of_fields() -> list[str]:
    """Every field that a header of any request has, and those above."""
    names, kinds = set(PLAIN), [RequestHeader]
    while kinds:
        kind = kinds.pop()
        names.update(kind.__struct_encode_fields__)
        kinds += kind.__subclasses__()
    assert {"compareGroup", "maxReconsumeTimes", "boundaryType"} <= names, "all headers are there"
    return sorted(names)


def hostile_requests(code: Code) -> Iterator[RemotingCommand]:
    """One field after the other holds the text; then all do, and the body."""
    for name in names_of_fields():
        yield RemotingCommand.request(code, PLAIN | {name: FORGED})
    yield RemotingCommand.request(code, dict.fromkeys(PLAIN, FORGED), FORGED.encode())
    names = {"groupName": FORGED, "topic": FORGED, "clientID": FORGED, "clientId": FORGED}
    body = {**names, "consumerGroup": FORGED, "producerDataSet": [{"groupName": "p"}]}
    body["consumerDataSet"] = [{"groupName": "g", "subscriptionDataSet": []}]
    yield RemotingCommand.request(code, PLAIN, json.dumps(body).encode())


def admin(name_server: str, *words: str) -> str:
    done = subprocess.run(
        [TIDEMARK, "admin", *words, "--namesrv", name_server],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


async def test_a_log_line_is_an_event_and_no_answer_moves_a_cursor(tmp_path: Path) -> None:
    with our_engine(tmp_path) as engine:
        address, name_server = engine.broker, engine.name_server
        rpc = RpcClient(system_runtime())
        asked: list[RemotingCommand] = []
        for code in Code:
            # What ends the engine or changes how it writes is for other tests.
            if code not in (Code.UPDATE_BROKER_CONFIG, Code.UPDATE_NAMESRV_CONFIG):
                asked += hostile_requests(code)
        answers: list[RemotingCommand] = []
        for at in range(0, len(asked), 200):
            answers += await asyncio.gather(
                *(rpc.invoke(address, one, timeout_ms=60_000) for one in asked[at : at + 200])
            )
        await asyncio.sleep(1)  # Of one kind of line only so many a second are written.
        for name in ("msgId", "producerGroup"):
            request = RemotingCommand.request(Code.END_TRANSACTION, PLAIN | {name: FORGED})
            request.mark_oneway()
            await rpc.invoke_oneway(address, request)
        for request in hostile_requests(Code.REGISTER_BROKER):
            answers.append(await rpc.invoke(name_server, request, timeout_ms=60_000))
        remarks = [answer.remark for answer in answers if answer.remark is not None]
        assert len(remarks) > len(asked) / 4
        assert [remark for remark in remarks if not remark.isprintable()] == []
        heartbeat = {"clientID": FORGED, "producerDataSet": [{"groupName": "sellers"}]}
        body = json.dumps(heartbeat | {"consumerDataSet": []}).encode()
        known = await rpc.invoke(
            address, RemotingCommand.request(Code.HEART_BEAT, {}, body), timeout_ms=60_000
        )
        assert known.code == ResponseCode.SUCCESS
        text = PLAIN | {"properties": f"KEYS\x01{FORGED}\x02{FORGED}\x01a\x02"}
        send = RemotingCommand.request(Code.SEND_MESSAGE, text, FORGED.encode())
        sent = await rpc.invoke(address, send, timeout_ms=60_000)
        assert sent.code == ResponseCode.SUCCESS, sent.remark
        shown = [
            await asyncio.to_thread(admin, name_server, *words)
            for words in (
                ("message", "by-id", sent.fields["msgId"]),
                ("message", "by-id", sent.fields["msgId"], "--json"),
                ("group", "producers"),
                ("group", "producers", "--json"),
                ("topic", "status", FORGED),
            )
        ]
        await rpc.close()
        for reported in shown:
            assert [line for line in reported.split("\n") if not line.isprintable()] == []
            assert not [line for line in reported.split("\n") if line.startswith("2026-")], reported
        assert all("forged" in reported for reported in shown), shown
    log = (tmp_path / "engine.log").read_text(encoding="utf-8")
    assert "forged" in log, "what was sent is in the log, as text"
    for line in log.removesuffix("\n").split("\n"):
        assert line.isprintable(), line
        assert EVENT.fullmatch(line) or line.startswith(TRACEBACK_MARK), line
