"""Row E2: `tidemark admin dlq ...` as a user types it, against a running engine."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from typer.testing import CliRunner

from engine.admin import Admin
from engine.admin.api.dead_letters import DeadLetterQuery
from engine.protocol.codes import RequestCode
from engine.runtime import system_runtime
from tests.integration.broker.cluster import RawClient, messages
from tests.integration.client.cluster_users import client_config, eventually
from tests.interop.our_engine import OurEngine
from tidemark import app

TOPIC, GROUP = "commanded", "commanded-group"
WHY = ("--why", "fixed in 1.2", "--who", "ada")


def dlq(engine: OurEngine, *words: str, fails: bool = False) -> str:
    """What `tidemark admin dlq <words>` says; it ends with 0, or else says one sentence."""
    done = CliRunner().invoke(
        app, ["admin", "dlq", *words, "--namesrv", engine.name_server], env={"USER": "bob"}
    )
    assert (done.exit_code == 0) is not fails, done.output
    if fails:
        assert done.stdout == ""
    return done.stderr if fails else done.stdout


def listed(engine: OurEngine, *words: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(dlq(engine, "list", GROUP, "--json", *words))
    return rows


async def kill_three(engine: OurEngine) -> None:
    """Three messages fail for good."""
    client = RawClient(engine.broker)
    await client.heartbeat(GROUP, (TOPIC,))
    for number in range(3):
        await client.send(f"{number}".encode(), topic=TOPIC, TAGS="AB"[number % 2])
    for message in messages(await client.pull(0, topic=TOPIC, group=GROUP)):
        await client.ask(
            RequestCode.CONSUMER_SEND_MSG_BACK,
            offset=message.physical_offset,
            group=GROUP,
            delayLevel=-1,
        )
    async with Admin(system_runtime(), client_config(engine.name_server)) as admin:

        async def known() -> bool:
            return len(await admin.dead_letters.find(GROUP, DeadLetterQuery())) == 3

        await eventually(known, "three dead letters")
    await client.close()


def test_dead_letters_are_listed_redriven_and_discarded_by_command(engine: OurEngine) -> None:
    asyncio.run(kill_three(engine))
    rows = listed(engine)
    assert [(row["topic"], row["tag"], row["fate"]) for row in rows] == [
        (TOPIC, "A", "WAITING"),
        (TOPIC, "B", "WAITING"),
        (TOPIC, "A", "WAITING"),
    ]
    assert "2 would be re-driven" in dlq(engine, "redrive", GROUP, "--tag", "A", *WHY, "--dry-run")
    assert len(listed(engine)) == 3, "a dry run decides nothing"
    assert "1 are re-driven" in dlq(engine, "redrive", GROUP, "--id", rows[0]["message_id"], *WHY)
    assert "2 are discarded" in dlq(engine, "discard", GROUP, "--everything", "--why", "too old")
    assert listed(engine) == []
    decided = [(row["fate"], row["by"], row["why"]) for row in listed(engine, "--all")]
    assert decided == [
        ("REDRIVEN", "ada", "fixed in 1.2"),
        ("DISCARDED", "bob", "too old"),
        ("DISCARDED", "bob", "too old"),
    ]


def test_an_order_that_means_nothing_is_refused_in_one_sentence(engine: OurEngine) -> None:
    assert "filters, or --everything" in dlq(engine, "redrive", GROUP, *WHY, fails=True)
    both = ("--everything", "--tag", "A")
    assert "filters, or --everything" in dlq(engine, "discard", GROUP, *both, *WHY, fails=True)
    too_fast = ("--everything", "--per-second", "0")
    assert "per_second=0" in dlq(engine, "redrive", GROUP, *too_fast, *WHY, fails=True)
