"""Asks a broker about selectors over the wire: its answer, and the messages it hands over.

`python -m tests.interop.selector_rows` asks a real Apache RocketMQ anew and writes the rows to
`tests/cases/selectors_on_the_wire.json`, with which tests compare our evaluator and our broker.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from engine.protocol.bodies import SubscriptionData
from engine.protocol.bodies_client import CheckClientRequest
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.sql92 import SQL92_EXPRESSION
from tests.integration.broker.cluster import RawClient, bodies, eventually
from tests.interop.real_rocketmq import real_rocketmq
from tests.selectors import REFUSED, ROWS, VALUES, Row, known_rows, message_properties

TOPIC = "selected_on_the_wire"


async def asked(broker: str, selectors: list[str]) -> tuple[dict[str, Row], dict[str, Row]]:
    """The rows of a broker: for a group whose heartbeat has brought the selector, and for a pull
    that brings its own.
    """
    client = RawClient(broker)
    for name, properties in message_properties().items():
        text = "".join(f"{key}\x01{value}\x02" for key, value in properties.items())
        sent = await client.send(name.encode(), topic=TOPIC, properties=text)
        assert sent.code == ResponseCode.SUCCESS, sent.remark

    async def all_there() -> bool:
        answer = await client.pull(0, topic=TOPIC, group="selected-all")
        return len(bodies(answer) if answer.body else []) == len(VALUES) + 1

    await eventually(all_there, "all messages can be pulled")
    by_group: dict[str, Row] = {}
    by_pull: dict[str, Row] = {}
    for number, selector in enumerate(selectors):
        group = f"selected-{number}"
        own = await client.pull(
            0, topic=TOPIC, group=group, subscription=selector, expressionType=SQL92_EXPRESSION
        )
        by_pull[selector] = _row(own)
        by_group[selector] = await _by_group(client, group, selector)
    await client.close()
    return by_group, by_pull


async def _by_group(client: RawClient, group: str, selector: str) -> Row:
    """As a Java client does: has it checked, sends it with a heartbeat, pulls."""
    data = SubscriptionData.by_selector(TOPIC, selector, SQL92_EXPRESSION, sub_version=1)
    check = await client.ask(
        RequestCode.CHECK_CLIENT_CONFIG, CheckClientRequest(client.client_id, group, data).encode()
    )
    beat = await client.heartbeat(group, (TOPIC,), expression=selector, kind=SQL92_EXPRESSION)
    assert beat.code == ResponseCode.SUCCESS, beat.remark
    pulled = await client.pull(0, topic=TOPIC, group=group, sysFlag=0, subVersion=1)
    if check.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
        assert pulled.code == ResponseCode.FILTER_DATA_NOT_EXIST, f"{selector}: {pulled.remark}"
        return REFUSED
    assert check.code == ResponseCode.SUCCESS, f"{selector}: {check.remark}"
    return _row(pulled)


def _row(pulled: RemotingCommand) -> Row:
    if pulled.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
        return REFUSED
    nothing = (ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_NOT_FOUND)
    assert pulled.code == ResponseCode.SUCCESS or pulled.code in nothing, pulled.remark
    return [body.decode() for body in bodies(pulled)] if pulled.body else []


def main() -> None:
    """Ask a real one."""
    with TemporaryDirectory() as folder, real_rocketmq(Path(folder)) as cluster:
        rows, _ = asyncio.run(asked(cluster.broker, list(known_rows())))
    lines = [f"{json.dumps(one)}: {json.dumps(row)}" for one, row in rows.items()]
    ROWS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
