"""A broker under a hostile message: whatever it accepts goes along every path and over a crash.

One input is one message: which of its header's numbers are odd, then its properties, then its body.
It runs in the simulator, so delays and questions take no time.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from engine.broker.broker import Broker
from engine.broker.config import BrokerConfig
from engine.namesrv.config import NameServerConfig
from engine.namesrv.namesrv import NameServer
from engine.remoting.access import Access
from engine.runtime import Runtime
from engine.store.config import FlushDiskType, StoreConfig
from engine.telemetry.frames import Turn, decode_frames
from engine.telemetry.segments import segment_names
from engine.telemetry.tables import LIFECYCLE, TABLES
from tests.integration.broker.accepted_messages import KNOWN, QUICK, Sent, follow
from tests.integration.broker.cluster import RawClient
from tests.integration.broker.spooled import into_the_lake
from tests.simulation.world import World, run_world

NAME_SERVER, BROKER, CLIENT = "10.0.0.1", "10.0.0.2", "10.0.0.3"
NAMESRV_ADDRESS = f"{NAME_SERVER}:9876"
VIRTUAL_HOSTS = Access(admin_networks=("10.0.0.0/8",))
LOG_BYTES = 1 << 20
SPOOL = "/store/spool"
HEADERS = [{}, *(one.header for one in KNOWN if one.header)]
BODY_MARK = b"\x03"
"""What ends the properties and begins the body."""
PLAIN = Sent("plain\x01one\x02", b"after")
LOSSES = {"UNDELIVERABLE_MESSAGE", "UNREADABLE_MESSAGE"}
"""Kinds of rows that no accepted message is a reason for. SPOOL_LOSS is one only where power has
not failed.
"""


def message_of(data: bytes) -> Sent:
    """The message that an input means."""
    choice, rest = data[:1], data[1:]
    properties, _, body = rest.partition(BODY_MARK)
    header = HEADERS[choice[0] % len(HEADERS)] if choice else {}
    return Sent(properties.decode("utf-8", "replace"), body, header)


def input_of(sent: Sent) -> bytes:
    """The reverse, for samples."""
    return bytes((HEADERS.index(sent.header),)) + sent.properties.encode() + BODY_MARK + sent.body


def accepted_message(data: bytes) -> None:
    """Send it each way, follow it, pull the plug, and follow a plain one through what is left."""
    sent = message_of(data)

    async def scenario(world: World) -> None:
        await start_name_server(world)
        await start(world)
        first = await follow(await client(world, "first"), NAMESRV_ADDRESS, [sent])
        assert not lifecycle_kinds(world) & {*LOSSES, "SPOOL_LOSS"}
        world.node(BROKER).crash(power_cut=len(data) % 2 == 0)
        await start(world)
        await follow(await client(world, "second"), NAMESRV_ADDRESS, [PLAIN], earlier=first)
        assert not lifecycle_kinds(world) & LOSSES
        into_the_lake(world.node(BROKER).runtime.disk, SPOOL)

    run_world(len(data), scenario)


async def start_name_server(world: World) -> None:
    """Who knows the broker's topics, for those who ask as clients do."""

    async def boot(runtime: Runtime) -> None:
        await NameServer(runtime, NameServerConfig(host=NAME_SERVER, access=VIRTUAL_HOSTS)).start()

    await world.node(NAME_SERVER).boot(boot)


def lifecycle_kinds(world: World) -> set[object]:
    """The kinds of all lifecycle rows in the spool."""
    disk, kind = world.node(BROKER).runtime.disk, LIFECYCLE.own_names.index("kind")
    return {
        values[kind]
        for name in segment_names(disk, SPOOL)
        for placed in decode_frames(disk.read(f"{SPOOL}/{name}"))[0]
        if isinstance(placed.frame, Turn)
        for number, _, values in placed.frame.rows
        if TABLES[number] is LIFECYCLE
    }


async def start(world: World) -> None:
    """The broker, over whatever its last life left."""
    store = StoreConfig(
        root="/store",
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        mapped_file_size_commit_log_bytes=LOG_BYTES,
        mapped_file_size_consume_queue_bytes=20 * 1000,
        max_hash_slot_count=50,
        max_index_count=20_000,
        delay_levels_ms=(200, 400, 600),
    )
    config = BrokerConfig(
        store=store,
        host=BROKER,
        access=VIRTUAL_HOSTS,
        namesrv_addresses=(NAMESRV_ADDRESS,),
        **QUICK,
    )

    async def boot(runtime: Runtime) -> Broker:
        broker = Broker(runtime, config)
        await broker.start()
        return broker

    await world.node(BROKER).boot(boot)


async def client(world: World, name: str) -> RawClient:
    """A client on a host of its own."""

    async def boot(runtime: Runtime) -> RawClient:
        return RawClient(f"{BROKER}:10911", name, runtime=runtime)

    made: RawClient = await world.node(f"{CLIENT}{len(name)}").boot(boot)
    return made


SAMPLES = [input_of(one) for one in chain(KNOWN, [replace(KNOWN[0], body=b"")])]
