"""The `tidemark admin topic` commands that inspect, create, change and delete topics.

Of queues: what a consume queue says of its messages, who would read which queues, and the order
setting that name servers keep of the topic.
"""

from __future__ import annotations

from typing import Annotated

import typer

from engine.admin import Admin
from engine.admin.api.topic_scaling import config_of
from engine.admin.commands.output import Row, moment, perm_text, shown
from engine.admin.commands.session import (
    DEFAULT_NAMESRV,
    JsonOption,
    NamesrvOption,
    ask,
    queues_of,
    route_to,
    says_lines,
    shows_rows,
)
from engine.client.consuming.allocation import Averagely
from engine.foundation.errors import ConfigError, RequestRefused
from engine.foundation.terminal import say
from engine.protocol.bodies import BrokerStatsData, TopicConfig
from engine.protocol.bodies_admin import ConsumeQueueUnits
from engine.protocol.codes import ResponseCode
from engine.protocol.message import MessageQueue
from engine.protocol.names import Perm, check_topic

app = typer.Typer(no_args_is_help=True)

NEW_TOPIC_QUEUES = 8

TopicArgument = Annotated[str, typer.Argument(help="Name of the topic.")]
BrokerOption = Annotated[
    str | None, typer.Option("--broker", "-b", help="Broker name; all masters when left out.")
]


@shows_rows(app, "list", empty="no topics")
async def list_topics(admin: Admin) -> list[Row]:
    """All topics the name server knows."""
    return [{"topic": name} for name in await admin.topics.names()]


@shows_rows(app, "show")
async def show(admin: Admin, topic: TopicArgument) -> list[Row]:
    """A topic's queues and permissions on each broker."""
    configs = await admin.topics.configs(topic)
    if not configs:
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"no broker has the topic {topic}")
    return [
        {
            "broker": name,
            "read_queues": config.read_queue_nums,
            "write_queues": config.write_queue_nums,
            "perm": perm_text(config.perm),
            "order": config.order,
            "attributes": " ".join(f"{key}={value}" for key, value in config.attributes.items())
            or None,
        }
        for name, config in configs.items()
    ]


@shows_rows(app, "route")
async def route(admin: Admin, topic: TopicArgument) -> list[Row]:
    """Where clients find a topic: brokers, addresses, queues as the name server has them."""
    found = await route_to(admin, topic)
    addresses = {one.broker_name: one.broker_addrs for one in found.broker_datas}
    clusters = {one.broker_name: one.cluster for one in found.broker_datas}
    return [
        {
            "cluster": clusters[queues.broker_name],
            "broker": queues.broker_name,
            "broker_id": broker_id,
            "address": address,
            "read_queues": queues.read_queue_nums,
            "write_queues": queues.write_queue_nums,
            "perm": perm_text(queues.perm),
        }
        for queues in found.queue_datas
        for broker_id, address in addresses.get(queues.broker_name, {}).items()
    ]


@shows_rows(app, "status")
async def status(admin: Admin, topic: TopicArgument) -> list[Row]:
    """The ends of each queue, and when its newest message was stored."""
    return [
        {
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "min_offset": ends.min_offset,
            "max_offset": ends.max_offset,
            "messages": ends.max_offset - ends.min_offset,
            "last_stored": moment(ends.last_update_timestamp_ms),
        }
        for queue, ends in (await admin.topics.status(topic)).items()
    ]


@shows_rows(app, "stats")
async def stats(admin: Admin, topic: TopicArgument) -> list[Row]:
    """Messages that come in, and that each group gets: per second now, and over a day."""
    groups: list[str | None] = [*await admin.topics.groups(topic)]
    rows: list[Row] = []
    for name in await admin.topics.configs(topic):
        address = (await admin.cluster.masters())[name]
        put = await admin.cluster.statistic(address, "TOPIC_PUT_NUMS", topic)
        for group in groups or [None]:
            key = f"{topic}@{group}"
            got = await admin.cluster.statistic(address, "GROUP_GET_NUMS", key) if group else None
            rows.append(
                {
                    "broker": name,
                    "group": group,
                    "in_tps": round(put.stats_minute.tps, 2) if put else None,
                    "out_tps": round(got.stats_minute.tps, 2) if got else None,
                    "in_24h": _of_a_day(put),
                    "out_24h": _of_a_day(got),
                }
            )
    if not rows:
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"no broker has the topic {topic}")
    return rows


def _of_a_day(stats: BrokerStatsData | None) -> int | None:
    """The longest sum that has something in it yet."""
    if stats is None:
        return None
    return stats.stats_day.sum or stats.stats_hour.sum or stats.stats_minute.sum


@shows_rows(app, "groups", empty="no groups")
async def groups(admin: Admin, topic: TopicArgument) -> list[Row]:
    """Groups that subscribe to a topic, or have offsets on it."""
    return [{"group": name} for name in await admin.topics.groups(topic)]


@says_lines(app, "create")
async def create(
    admin: Admin,
    topic: TopicArgument,
    *,
    queues: Annotated[
        int | None,
        typer.Option(
            "--queues",
            "-q",
            help=f"Queues on each broker; as they are, or {NEW_TOPIC_QUEUES}, if left out.",
        ),
    ] = None,
    perm: Annotated[str, typer.Option(help="r, w or rw.")] = "rw",
    order: Annotated[
        bool | None,
        typer.Option("--order/--no-order", help="Ordered over all brokers; as it is, if left out."),
    ] = None,
    sys_flag: Annotated[
        int | None, typer.Option(help="RocketMQ's topicSysFlag; as it is, if left out.")
    ] = None,
    attributes: Annotated[
        str, typer.Option(help="As RocketMQ writes them: +message.type=FIFO,-other.")
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Take queues away at once, and strand what is in them.")
    ] = False,
    broker: BrokerOption = None,
) -> list[str]:
    """Create a topic, or give an existing one these queues and permissions."""
    bits = read_perm(perm)
    check_topic(topic)
    masters = await chosen_masters(admin, broker)
    before = {
        name: await admin.topics.config_at(address, topic) for name, address in masters.items()
    }
    if queues is not None and not force:
        for name, there in before.items():
            _refuse_fewer(topic, name, there, queues)
    said = []
    for name, address in masters.items():
        there = before[name] or TopicConfig(topic, NEW_TOPIC_QUEUES, NEW_TOPIC_QUEUES)
        stranded = await admin.topics.create(
            address,
            topic,
            read_queues=there.read_queue_nums if queues is None else queues,
            write_queues=there.write_queue_nums if queues is None else queues,
            perm=bits,
            order=there.order if order is None else order,
            sys_flag=there.topic_sys_flag if sys_flag is None else sys_flag,
            attributes=attributes,
            force=force,
        )
        count = there.write_queue_nums if queues is None else queues
        said.append(f"topic {topic}: {count} queues, perm {perm}, on {name}")
        if stranded:
            said.append(f"stranded on {name}: {stranded}")
    return said


def _refuse_fewer(topic: str, broker_name: str, there: TopicConfig | None, queues: int) -> None:
    """Raise ConfigError when an existing topic would have fewer queues than it has."""
    most = 0 if there is None else max(there.read_queue_nums, there.write_queue_nums)
    if queues < most:
        raise ConfigError(
            "--queues",
            queues,
            f"at least the {most} that topic {topic} has on broker {broker_name}: to take queues "
            f"away without losing sight of a message use `topic shrink {topic} --queues {queues}`, "
            "or strand what is in them with --force",
        )


@says_lines(app, "perm")
async def change_perm(
    admin: Admin,
    topic: TopicArgument,
    perm: Annotated[str, typer.Argument(help="r, w or rw.")],
    *,
    broker: BrokerOption = None,
) -> str:
    """Change a topic's permissions and nothing else."""
    bits, masters = read_perm(perm), await chosen_masters(admin, broker)
    configs = await admin.topics.configs(topic)
    changed = [name for name in configs if name in masters]
    if not changed:
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"no broker has the topic {topic}")
    for name in changed:
        await admin.topics.create(
            masters[name],
            topic,
            read_queues=configs[name].read_queue_nums,
            write_queues=configs[name].write_queue_nums,
            perm=bits,
            order=configs[name].order,
            sys_flag=configs[name].topic_sys_flag,
        )
    names = changed
    return f"topic {topic}: perm {perm} on {', '.join(names)}"


@app.command("delete")
def delete(
    topic: TopicArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
) -> None:
    """Delete a topic everywhere, with its queues and every group's offsets on it."""
    if not yes:
        typer.confirm(f"Delete topic {topic} with all its messages?", abort=True)

    async def work(admin: Admin) -> None:
        await route_to(admin, topic)
        await admin.topics.delete(topic)

    ask(namesrv, work)
    say(f"topic {topic} is deleted")


async def chosen_masters(admin: Admin, broker: str | None) -> dict[str, str]:
    """Addresses of the masters meant, by broker name. Raises ConfigError for an unknown broker."""
    masters = await admin.cluster.masters()
    if not masters:
        raise ConfigError("--namesrv", "no broker", "a name server that brokers are registered at")
    if broker is None:
        return masters
    if broker not in masters:
        raise ConfigError("--broker", broker, f"one of {', '.join(masters)}")
    return {broker: masters[broker]}


def read_perm(text: str) -> Perm:
    """`r`, `w` or `rw`. Raises ConfigError."""
    words = {"r": Perm.READ, "w": Perm.WRITE, "rw": Perm.READ | Perm.WRITE}
    if text not in words:
        raise ConfigError("perm", text, "r, w or rw")
    return words[text]


ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""Where name servers keep `broker:queues;...` of a topic."""

BrokerArgument = Annotated[str, typer.Argument(help="Name of the broker.")]
QueueArgument = Annotated[int, typer.Argument(min=0, help="Number of the queue.")]


@app.command("units")
def units(
    topic: TopicArgument,
    broker: BrokerArgument,
    queue: QueueArgument,
    *,
    begin: Annotated[int, typer.Option("--from", min=0, help="First queue offset.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="At most so many.")] = 32,
    group: Annotated[
        str | None, typer.Option(help="Say what this group subscribes to, as well.")
    ] = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """What a queue's index says of its messages: where they are in the log, how long, which tag."""

    async def work(admin: Admin) -> ConsumeQueueUnits:
        place = await queue_of(admin, topic, broker, queue_id=queue)
        if await admin.offsets.max_offset(place) == 0:
            return ConsumeQueueUnits(0, 0, [])  # Nobody ever wrote to it.
        found = await admin.topics.queue_units(place, begin, count=count, group=group)
        if begin >= found.min_queue_index:
            return found
        return await admin.topics.queue_units(
            place, found.min_queue_index, count=count, group=group
        )

    found = ask(namesrv, work)
    first = max(begin, found.min_queue_index)
    rows = [
        {
            "offset": first + number,
            "physical_offset": unit.physic_offset,
            "size": unit.physic_size,
            "tag_code": unit.tags_code,
        }
        for number, unit in enumerate(found.queue_data)
    ]
    ends = f"offsets {found.min_queue_index} to {found.max_queue_index}"
    say(shown(rows, as_json=as_json, empty=f"nothing from {begin} on: {ends}"))
    if group is not None:
        data = found.subscription_data
        wanted = found.filter_data if data is None else f"{group} subscribes to {data.sub_string}"
        say(f"\n{wanted}", err=as_json)


@shows_rows(app, "allocate")
async def allocate(
    admin: Admin,
    topic: TopicArgument,
    clients: Annotated[list[str], typer.Argument(help="Ids of the clients, or any names.")],
) -> list[Row]:
    """Which queues each of these clients would hold, were they the members of a group (AVG)."""
    members = sorted(set(clients))
    if len(members) < len(clients) or not all(name.strip() for name in members):
        raise ConfigError("clients", " ".join(clients), "names that differ, none of them blank")
    queues = await queues_of(admin, topic)
    shares = {name: Averagely().allocate(name, queues, members) for name in members}
    return [
        {
            "client": name,
            "broker": held.broker_name if held else None,
            "queue": held.queue_id if held else None,
        }
        for name, share in shares.items()
        for held in (*share,) or (None,)
    ]


@shows_rows(app, "order", empty="topic {topic} has no order setting")
async def order(
    admin: Admin,
    topic: TopicArgument,
    *,
    put: Annotated[
        str | None, typer.Option("--set", help="broker:queues, several split by ';'.")
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Let name servers forget it.")] = False,
) -> list[Row]:
    """The order setting of a topic, which routes carry where orderMessageEnable is true."""
    if put is not None and delete:
        raise ConfigError("--set", put, "not together with --delete")
    if put is not None:
        _check_order(put)
        await admin.name_servers.put_key_value(ORDER_NAMESPACE, topic, put)
    elif delete:
        await admin.name_servers.delete_key_value(ORDER_NAMESPACE, topic)
    setting = await admin.name_servers.key_value(ORDER_NAMESPACE, topic)
    return [] if setting is None else [{"topic": topic, "order": setting}]


async def queue_of(admin: Admin, topic: str, broker: str, *, queue_id: int) -> MessageQueue:
    """A queue that there is. Raises ConfigError, or RequestRefused when the topic is not there."""
    await chosen_masters(admin, broker)
    config = await config_of(admin, topic, broker)
    last = max(config.read_queue_nums, config.write_queue_nums) - 1
    if not 0 <= queue_id <= last:
        raise ConfigError("queue", queue_id, f"0 to {last}, the queues of {topic} on {broker}")
    return MessageQueue(topic, broker, queue_id)


def _check_order(text: str) -> None:
    for part in text.split(";"):
        name, _, number = part.rpartition(":")
        if not (name.strip() and number.isdecimal() and int(number)):
            raise ConfigError("--set", text, "broker:queues such as broker-a:4;broker-b:4")
