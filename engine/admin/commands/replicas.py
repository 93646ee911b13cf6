"""The `tidemark admin replica` commands: replica state, promotion, hand-over and rebuild.

Absent on purpose: what an order does (engine/admin/api/replicas, engine/broker/replicating).
"""

from __future__ import annotations

from typing import Annotated

import typer

from engine.admin import Admin
from engine.admin.api.replicas import Promotion, Replica
from engine.admin.commands.output import Row, shown
from engine.admin.commands.session import (
    says_lines,
    shows_rows,
)
from engine.foundation.errors import ConfigError
from engine.foundation.units import SECOND_MS
from engine.protocol.bodies_admin import ReplicaState

app = typer.Typer(no_args_is_help=True)

MemberArgument = Annotated[
    str, typer.Argument(help="A node as dLegerPeers names it: n3-127.0.0.1:40914.")
]
NameArgument = Annotated[str, typer.Argument(help="Name of the broker.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do it; else it is only shown.")]
AlsoOption = Annotated[
    list[str] | None,
    typer.Option("--also", help="Address of a copy that no name server names; may be repeated."),
]
ROLES = ("SYNC_MASTER", "ASYNC_MASTER")
PREVIEWED = "nothing is changed yet; --yes does it"


@shows_rows(app, "list", empty="no broker is registered")
async def list_replicas(
    admin: Admin,
    broker: Annotated[str | None, typer.Argument(help="Name of the broker; all without.")] = None,
    *,
    also: AlsoOption = None,
) -> list[Row]:
    """Every copy of a broker's log: its role, epoch, begin and end, and how far it is behind."""
    known = (await admin.cluster.info()).broker_addr_table
    rows: list[Row] = []
    for name in sorted(known) if broker is None else [broker]:
        rows += _rows(name, await admin.replicas.of(name, also or ()))
    return rows


def _rows(broker: str, found: list[Replica]) -> list[Row]:
    master = next((one.state for one in found if one.leads), None)
    return [
        _row(broker, one, None if master is None else (master.log_end, one.is_in_sync(master)))
        for one in found
    ]


def _row(broker: str, one: Replica, to_master: tuple[int, bool] | None) -> Row:
    state = one.state
    if state is None:
        return {
            "broker": broker,
            "id": one.broker_id,
            "address": one.address,
            "role": "?",
            "state": f"no answer: {one.why_not}",
        }
    is_slave = state.role == "SLAVE"
    measured = is_slave and to_master is not None
    return {
        "broker": broker,
        "id": one.broker_id,
        "address": one.address,
        "role": state.broker_role if state.role == "MASTER" else state.role,
        "epoch": one.place[0],
        "begin": state.log_begin,
        "end": state.log_end,
        "synced": state.log_synced,
        "in_sync": to_master[1] if measured and to_master else None,
        "behind": max(0, to_master[0] - state.log_end) if measured and to_master else None,
        "state": _standing(state, is_slave=is_slave),
    }


def _standing(state: ReplicaState, *, is_slave: bool) -> str:
    if state.member:
        return f"{state.member}, {state.reason}"
    return f"{state.following}: {state.reason}".rstrip(": ") if is_slave else "up"


@says_lines(app, "promote")
async def promote(
    admin: Admin,
    broker: NameArgument,
    *,
    role: Annotated[str, typer.Option(help="SYNC_MASTER or ASYNC_MASTER.")] = "SYNC_MASTER",
    copies: Annotated[int, typer.Option(min=1, help="inSyncReplicas of a SYNC_MASTER.")] = 2,
    slaves: Annotated[
        int | None, typer.Option(min=1, help="Slaves there are, when name servers know fewer.")
    ] = None,
    also: AlsoOption = None,
    yes: YesOption = False,
) -> list[str]:
    """Let the slave that has most of a lost master's log lead; shows what may be lost by it."""
    if role not in ROLES:
        raise typer.BadParameter(f"{role} is none of {', '.join(ROLES)}", param_hint="--role")
    plan = await admin.replicas.plan(
        broker, broker_role=role, copies=copies, slaves=slaves, others=also or ()
    )
    if not yes:
        return [*plan.sentences(), PREVIEWED]
    lost = await admin.replicas.promote(plan)
    done = [*plan.sentences(), _led(broker, plan)]
    if lost > 0:
        former = plan.former.address if plan.former else "?"
        done.append(f"{lost} bytes of {former} are lost; it reports which: `replica rebuild`")
    return done


def _led(broker: str, plan: Promotion) -> str:
    return f"done: {plan.chosen.address} leads {broker} in epoch {plan.epoch}"


@says_lines(app, "transfer")
async def transfer(
    admin: Admin,
    broker: NameArgument,
    *,
    to: Annotated[int | None, typer.Option(min=1, help="Broker id of the slave.")] = None,
    wait: Annotated[int, typer.Option(min=1, help="Seconds to wait for the slave.")] = 30,
    yes: YesOption = False,
) -> list[str]:
    """Hand the lead over to a slave that has all of the log; nothing is lost."""
    if yes:
        plan = await admin.replicas.transfer(broker, to=to, wait_ms=wait * SECOND_MS)
        return [_led(broker, plan)]
    effect = (
        f"the master of {broker} takes no message until a slave has all of its log; that one "
        "leads then, and the master becomes its slave"
    )
    found = _rows(broker, await admin.replicas.of(broker))
    return [shown(found, as_json=False, empty=""), effect, PREVIEWED]


@says_lines(app, "add")
async def add(
    admin: Admin, broker: NameArgument, member: MemberArgument, *, yes: YesOption = False
) -> list[str]:
    """Take a node that was started with the group's dLegerPeers and its own into a Raft group."""
    return await _change_group(admin, broker, "ADD", member, yes=yes)


@says_lines(app, "remove")
async def remove(
    admin: Admin, broker: NameArgument, member: MemberArgument, *, yes: YesOption = False
) -> list[str]:
    """Take a node out of a Raft group: it gets nothing more, and decides nothing any more."""
    return await _change_group(admin, broker, "REMOVE", member, yes=yes)


async def _change_group(
    admin: Admin, broker: str, action: str, member: str, *, yes: bool
) -> list[str]:
    if yes:
        state = await admin.replicas.change_group(broker, action, member)
        return [_members(broker, state), "done"]
    found = [one.state for one in await admin.replicas.of(broker) if one.leads]
    if not found or found[0] is None:
        raise ConfigError("broker", broker, "a Raft group that has a leader")
    return [_members(broker, found[0]), PREVIEWED]


def _members(broker: str, state: ReplicaState) -> str:
    voters, learners = ", ".join(state.voters), ", ".join(state.learners)
    return f"{broker}: {voters} decide" + (f"; {learners} learn" if learners else "")


@says_lines(app, "rebuild")
async def rebuild(
    admin: Admin,
    broker: NameArgument,
    address: Annotated[str, typer.Argument(help="host:port of the copy that is to be cut.")],
    *,
    yes: YesOption = False,
) -> list[str]:
    """Cut what a diverged copy has and its master has not, so that it follows again."""
    if address not in (one.address for one in await admin.replicas.of(broker, [address])):
        raise ConfigError("address", address, f"a copy of {broker}")
    cut = await admin.replicas.cut(address)
    holds = (
        f"the log of {address} holds {cut.end - cut.begin} bytes, [{cut.begin}, {cut.end}), "
        f"with {cut.messages} messages that its master's does not hold"
    )
    said = [holds]
    said += [f"  {topic}: {count}" for topic, count in sorted(cut.topics.items())]
    if yes:
        done = await admin.replicas.cut(address, at=cut.begin)
        said.append(f"done: they were written to {done.file} and cut; it follows its master")
    else:
        said.append(PREVIEWED)
    return said
