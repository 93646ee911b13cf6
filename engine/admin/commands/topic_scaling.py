"""The `tidemark admin topic` commands that add or remove queues and list idle consumers.

Invariant: shrinking waits until producers know the new number and every group has drained the
queues that go; without waiting it is refused as long as it would strand a message, unless forced,
and then says what it strands. A wait that is given up leaves the topic as it is: fewer queues to
write, all still readable, and the same command goes on from there. Absent on purpose: the order of
the steps' requests (engine/admin/api/topic_scaling).
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from engine.admin import Admin
from engine.admin.api.topic_scaling import (
    IdleMember,
    Removal,
    Stranded,
    idle_members,
    removal_of,
    set_queues,
)
from engine.admin.commands.output import Row
from engine.admin.commands.topics import BrokerOption, TopicArgument, chosen_masters
from engine.foundation.errors import ClusterError, ConfigError, RequestRefused
from engine.foundation.limits import QUEUES_PER_TOPIC_MAX
from engine.foundation.terminal import say
from engine.protocol.codes import ResponseCode

LOOK_EVERY_S = 1.0
SETTLE_S = 35
"""Producers ask for routes each 30 s: until then some still write to queues that go."""
WAIT_S = 600

QueuesOption = Annotated[
    int, typer.Option("--queues", "-q", min=1, max=QUEUES_PER_TOPIC_MAX, help="Queues to keep.")
]


async def shrink(
    admin: Admin,
    topic: TopicArgument,
    *,
    queues: QueuesOption,
    broker: BrokerOption = None,
    wait: Annotated[int, typer.Option(help="Seconds to wait for groups to drain.")] = WAIT_S,
    settle: Annotated[
        int, typer.Option(min=0, help="Seconds without a new message in the queues that go.")
    ] = SETTLE_S,
    now: Annotated[
        bool, typer.Option("--now", help="Do not wait: all at once or not at all.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --now: strand what is left.")
    ] = False,
) -> list[str]:
    """Take queues from a topic in two steps: first for writing, and when drained for reading."""
    if force and not now:
        raise ConfigError("--force", force, "given with --now: waiting strands nothing")
    if wait < settle and not now:
        raise ConfigError(
            "--wait",
            wait,
            f"at least the {settle} s of --settle, that the queues are quiet for",
        )
    names = await brokers_with(admin, topic, broker)
    if now:
        return await _shrink_now(admin, topic, names, keep=queues, force=force)
    return await _shrink_in_steps(admin, topic, names, keep=queues, wait_s=wait, settle_s=settle)


async def grow(
    admin: Admin, topic: TopicArgument, *, queues: QueuesOption, broker: BrokerOption = None
) -> list[str]:
    """Give a topic more queues; its consumers find them by their next rebalance."""
    said = []
    configs = await admin.topics.configs(topic)
    for name in await brokers_with(admin, topic, broker):
        before = configs[name]
        if queues < max(before.read_queue_nums, before.write_queue_nums):
            raise ConfigError(
                "--queues",
                queues,
                f"at least the {before.read_queue_nums} of broker {name}; to take queues away "
                "use shrink",
            )
        await set_queues(admin, topic, name, read=queues, write=queues)
        said.append(f"{name}: {before.write_queue_nums} → {queues} queues")
    return said


async def idle(admin: Admin, topic: TopicArgument) -> list[Row]:
    """Consumers that hold none of a topic's queues, or only queues nobody ever wrote to."""
    return [
        {
            "group": one.group,
            "client": one.client_id,
            "queues": " ".join(f"{q.broker_name}:{q.queue_id}" for q in one.queues or ()) or None,
            "why": _why_idle(one),
        }
        for one in await idle_members(admin, topic)
    ]


async def brokers_with(admin: Admin, topic: str, broker: str | None) -> list[str]:
    """Names of the brokers meant that have the topic. Raises RequestRefused when none has."""
    chosen = await chosen_masters(admin, broker)
    names = [name for name in await admin.topics.configs(topic) if name in chosen]
    if not names:
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"no broker has the topic {topic}")
    return names


async def _shrink_now(
    admin: Admin, topic: str, names: list[str], *, keep: int, force: bool
) -> list[str]:
    removals = {name: await _checked(admin, topic, name, keep=keep) for name in names}
    stranded = [one for removal in removals.values() for one in removal.stranded]
    if stranded and not force:
        raise ClusterError(
            f"topic {topic} is not shrunk, for these would be stranded: {_listed(stranded)}. "
            "Leave --now out to wait for them, or add --force to strand them"
        )
    said = [f"stranded: {_listed(stranded)}"] if stranded else []
    for name, removal in removals.items():
        before = await set_queues(admin, topic, name, read=keep, write=keep, force=force)
        said += [f"{name}: {before.read_queue_nums} → {keep} queues", *_broadcast(name, removal)]
    return said


async def _shrink_in_steps(
    admin: Admin, topic: str, names: list[str], *, keep: int, wait_s: int, settle_s: int
) -> list[str]:
    said = []
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    for name in names:
        removal = await _checked(admin, topic, name, keep=keep)
        orphans = [one for one in removal.stranded if one.group is None]
        if orphans:
            raise ClusterError(
                f"no group reads topic {topic}, so nobody would ever drain {_listed(orphans)}; "
                "--now --force strands them"
            )
        if removal.unreadable:
            raise ClusterError(
                f"topic {topic} on {name} has more queues to write than to read, so these would "
                f"never be drained: {_listed(removal.unreadable)}. Let them be read first "
                "(tidemark admin topic grow), or strand them with --now --force"
            )
    for name in names:
        await set_queues(admin, topic, name, write=keep)
        say(f"{name}: producers get {keep} queues; waiting for the others to be drained")
    for name in names:
        quiet_since, ends = loop.time(), None
        while True:
            removal = await removal_of(admin, topic, name, keep=keep)
            if ends != removal.ends:
                quiet_since, ends = loop.time(), removal.ends
            if not removal.stranded and loop.time() - quiet_since >= settle_s:
                break
            if loop.time() >= deadline:
                raise ClusterError(
                    f"topic {topic} on {name} is not drained within {wait_s} s: "
                    f"{_listed(removal.stranded) or 'messages still arrive'}. Its queues from "
                    f"{keep} on stay readable; run the same command to go on"
                )
            await asyncio.sleep(LOOK_EVERY_S)
        before = await set_queues(admin, topic, name, read=keep, write=keep)
        said += [f"{name}: {before.read_queue_nums} → {keep} queues", *_broadcast(name, removal)]
    return said


async def _checked(admin: Admin, topic: str, name: str, *, keep: int) -> Removal:
    removal = await removal_of(admin, topic, name, keep=keep)
    if not removal.ends:
        raise ConfigError("--queues", keep, f"fewer than broker {name} has; to add some use grow")
    return removal


def _why_idle(one: IdleMember) -> str:
    if one.queues is None:
        return f"unknown: {one.silence}"
    return "its queues were never written to" if one.queues else "it holds no queue"


def _listed(stranded: list[Stranded] | tuple[Stranded, ...]) -> str:
    """`group g: 3 messages of broker-a queue 2, ...`, by group."""
    return "; ".join(
        f"{'nobody' if one.group is None else f'group {one.group}'}: {one.message_count} messages "
        f"of {one.queue.broker_name} queue {one.queue.queue_id}"
        for one in stranded
    )


def _broadcast(name: str, removal: Removal) -> list[str]:
    return [
        f"{name}: group {group} is broadcasting: how far its members are only they know"
        for group in removal.broadcast_groups
    ]
