"""However the bytes are cut on their way, each request gets its own answer, and only once."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.command import RemotingCommand, SerializeType
from engine.remoting import Peer, RpcClient, RpcServer
from tests.unit.remoting.memory_network import MemoryNetwork, runtime_over

REQUESTS = st.lists(
    st.builds(
        RemotingCommand,
        code=st.sampled_from([1, 2]),
        fields=st.dictionaries(st.text("abc", min_size=1), st.text("xyz", min_size=1), max_size=3),
        body=st.binary(max_size=300),
        serialize_type=st.sampled_from(SerializeType),
    ),
    max_size=12,
)


def echo(peer: Peer, request: RemotingCommand) -> RemotingCommand:
    return request.respond(0, None, dict(request.fields), request.body)


async def echo_later(peer: Peer, request: RemotingCommand) -> RemotingCommand:
    await asyncio.sleep(0)
    return echo(peer, request)


@given(REQUESTS, st.integers(1, 500))
async def test_each_request_gets_its_own_answer(requests: list[RemotingCommand], cut: int) -> None:
    served: list[RemotingCommand] = []

    def note_and_echo(peer: Peer, request: RemotingCommand) -> RemotingCommand:
        served.append(request)
        return echo(peer, request)

    runtime = runtime_over(MemoryNetwork(chunk_bytes=cut))
    server = RpcServer(runtime, {1: note_and_echo, 2: echo_later})
    await server.start("memory", 9876)
    client = RpcClient(runtime)
    answers = await asyncio.gather(
        *(client.invoke("memory:9876", request, timeout_ms=5000) for request in requests)
    )
    assert [(a.fields, bytes(a.body), a.serialize_type) for a in answers] == [
        (r.fields, bytes(r.body), r.serialize_type) for r in requests
    ]
    assert [(r.fields, bytes(r.body)) for r in served] == [
        (r.fields, bytes(r.body)) for r in requests if r.code == 1
    ]
    await client.close()
    await server.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}
