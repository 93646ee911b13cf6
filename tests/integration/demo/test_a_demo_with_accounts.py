"""The cast of `tidemark demo --accounts`: its clients are at work, others are not let in."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from demo.accounts import write_accounts
from demo.cast import OwnCast, Roles
from demo.plan import make_plan
from demo.ports import free_broker_port, free_port_block
from demo.processes import Actor, stop_all
from tests.integration.client.cluster_users import eventually

PATIENCE_S = 60.0


def begin(actor: Actor, says: str) -> None:
    actor.start()
    actor.wait_for_line(says, within_s=PATIENCE_S)


def admin(roles: Roles, *credentials: str) -> subprocess.CompletedProcess[str]:
    """`tidemark admin topic list` in a process of its own."""
    command = [str(Path(sys.prefix) / "bin" / "tidemark"), "admin", *credentials, "topic", "list"]
    return subprocess.run(
        [*command, "--namesrv", roles.namesrv], capture_output=True, text=True, check=False
    )


def test_the_clients_of_a_demo_with_accounts_are_let_in_and_a_stranger_is_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "logs").mkdir()
    accounts = write_accounts(tmp_path / "accounts")
    roles = Roles(
        home=tmp_path,
        lake=tmp_path / "lake",
        namesrv_port=free_port_block(1),
        broker_port=free_broker_port(),
        dash_port=0,
        accounts=accounts,
    )
    cast = OwnCast(make_plan(1, 120, ()), roles)
    consumer = cast.consumers["ledger-1"]
    try:
        for actor in (cast.name_server, cast.broker, cast.producer):
            begin(actor, "ready")
        begin(consumer, "ready")
        cast.producer.send_line('{"topic": "payments", "queue_id": 0, "key": "by-order"}')
        cast.producer.wait_for_line("sent by-order", within_s=PATIENCE_S)
        known = admin(roles, "--credentials", str(accounts.admin))
        assert "payments" in known.stdout, known.stderr
        assert "authentication is required" in admin(roles).stderr
        ledger = tmp_path / "ledgers" / "ledger-1.jsonl"
        asyncio.run(eventually(ledger.exists, "a message that was worked on"))
    finally:
        stop_all([cast.producer, consumer])
        stop_all([cast.broker, cast.name_server])
    assert "not sent" not in cast.producer.log.read_text()
