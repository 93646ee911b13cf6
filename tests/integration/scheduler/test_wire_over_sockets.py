"""Row F2: both sides of the wire on real sockets, with peers that behave and peers that do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from engine.foundation.errors import (
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    RemoteProtocolError,
    RequestRefused,
    RequestTimedOut,
    TidemarkError,
)
from pipelines.scheduler.wire.addresses import Address
from pipelines.scheduler.wire.client import AdminClient, ExecutorClient, opened_caller
from pipelines.scheduler.wire.messages import (
    Answer,
    Dialect,
    LogPage,
    LogRequest,
    Registration,
    RunRequest,
    RunResult,
    decode_results,
)
from pipelines.scheduler.wire.server import WireApplication, WireRequest, listening, served
from pipelines.scheduler.wire.tokens import Tokens

RUN = RunRequest(job_id=7, log_id=101, log_time_ms=1_700_000_000_000, parameters="é & <b>")
RESULT = RunResult(101, 1_700_000_000_000, 200)


@asynccontextmanager
async def answering(
    *paths: str, tokens: Tokens, answer: Answer | None = None, timeout_s: float = 30
) -> AsyncIterator[tuple[Address, list[WireRequest]]]:
    """A server that writes down what it is asked."""
    asked: list[WireRequest] = []

    async def call(one: WireRequest) -> Answer:
        asked.append(one)
        return Answer() if answer is None else answer

    listener = listening("127.0.0.1", 0, tokens)
    port = listener.getsockname()[1]
    application = WireApplication(dict.fromkeys(paths, call), tokens, request_timeout_s=timeout_s)
    async with served(application, listener, idle_timeout_s=1):
        yield Address.parse(f"http://127.0.0.1:{port}/"), asked


@asynccontextmanager
async def strange_peer(
    behave: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[Address]:
    """A server that does as it likes with each connection, then ends it."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await behave(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield Address.parse(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    finally:
        server.close()


async def raw(at: Address, request: bytes) -> bytes:
    """What comes back for bytes that no client of ours would send."""
    reader, writer = await asyncio.open_connection(at.host, at.port)
    writer.write(request)
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return await reader.readexactly(length)
    finally:
        writer.close()


async def test_calls_of_a_centre_reach_the_executor_and_its_answers_come_back() -> None:
    page = LogPage(1, 2, "one\ntwo\n", is_end=True)
    paths = ("/beat", "/idleBeat", "/run", "/kill", "/log", "/trigger")
    tokens = Tokens("secret")
    async with (
        answering(*paths, tokens=tokens, answer=Answer(content=page.as_content())) as (at, asked),
        opened_caller() as caller,
    ):
        executor = ExecutorClient(caller, at, token="secret")
        later = ExecutorClient(caller, at, token="secret", dialect=Dialect.FROM_3_5)
        assert (await executor.beat()).is_success
        assert (await executor.idle_beat(7)).is_success
        assert (await executor.run(RUN)).is_success
        assert (await later.run(RUN)).is_success
        assert (await executor.kill(7)).is_success
        assert await executor.log(LogRequest(101, RUN.log_time_ms, 1)) == page
    assert asked[0].body == b""
    assert [RunRequest.decode(one.body) for one in asked[2:4]] == [RUN, RUN]


async def test_an_executor_reports_under_the_path_of_the_admin() -> None:
    tokens = Tokens(None, {"reports": "own"})
    async with (
        answering("/ctx/api/registry", "/ctx/api/callback", tokens=tokens) as (at, asked),
        opened_caller() as caller,
    ):
        admin = Address.parse(f"{at.text}ctx")
        client = AdminClient(caller, admin, token="own", app="reports")
        registration = Registration("reports", "http://127.0.0.1:9999/")
        assert (await client.register(registration)).is_success
        assert not (await client.remove(registration)).is_success
        assert (await client.report([RESULT])).is_success
    assert [one.speaker.app for one in asked] == ["reports", "reports"]
    assert decode_results(asked[1].body) == [RESULT]


async def test_who_has_no_token_is_refused_before_his_body_is_read() -> None:
    async with answering("/run", tokens=Tokens("secret")) as (at, asked):
        for token in (b"", b"XXL-JOB-ACCESS-TOKEN: wrong\r\n"):
            # The body never comes: whoever waited for it would not answer.
            request = (
                b"POST /run HTTP/1.1\r\nHost: localhost\r\n" + token + b"Content-Length: 99\r\n\r\n"
            )
            assert await raw(at, request) == b'{"code":500,"msg":"The access token is wrong."}'
    assert not asked


async def test_what_is_no_call_is_answered_as_the_java_side_does() -> None:
    async with answering("/beat", tokens=Tokens(None)) as (at, asked):
        got = await raw(at, b"GET /beat HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert got == b'{"code":500,"msg":"invalid request, HttpMethod not support."}'
        got = await raw(
            at, b"POST /nope HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
        )
        assert got == b'{"code":500,"msg":"invalid request, uri-mapping(/nope) not found."}'
    assert not asked


async def test_a_body_that_is_too_long_is_refused_announced_or_not() -> None:
    async with answering("/run", tokens=Tokens(None)) as (at, asked):
        head = b"POST /run HTTP/1.1\r\nHost: localhost\r\n"
        got = await raw(at, head + b"Content-Length: 5242881\r\n\r\n")
        assert b"a body of more than 5,242,880 bytes" in got
        chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        got = await raw(at, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 81)
        assert b"a body of more than 5,242,880 bytes" in got
    assert not asked


@pytest.mark.parametrize(
    "begun", [b"", b"POST /beat HT", b"POST /beat HTTP/1.1\r\nHost: localhost\r\n"]
)
async def test_who_does_not_come_to_his_request_is_hung_up_on(begun: bytes) -> None:
    request = b"POST /beat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    async with answering("/beat", tokens=Tokens(None)) as (at, _):
        for before in (b"", request):
            reader, writer = await asyncio.open_connection(at.host, at.port)
            writer.write(before + begun)
            async with asyncio.timeout(20):
                answer = await reader.read()
            assert (b'{"code":200}' in answer) == bool(before)
            writer.close()


async def test_a_head_without_end_is_not_collected() -> None:
    async with answering("/beat", tokens=Tokens(None)) as (at, asked):
        reader, writer = await asyncio.open_connection(at.host, at.port)
        writer.write(b"POST /beat HTTP/1.1\r\nX: " + b"x" * 200_000)
        async with asyncio.timeout(20):
            assert b"400 Bad Request" in await reader.readline()
        writer.close()
    assert not asked


async def test_a_body_that_does_not_come_is_not_waited_for_long() -> None:
    async with answering("/run", tokens=Tokens(None), timeout_s=0.1) as (at, asked):
        head = b"POST /run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
        assert b"no answer within 0.1 s" in await raw(at, head)
    assert not asked


async def test_a_fault_of_ours_is_returned_without_its_insides() -> None:
    async def broken(_: WireRequest) -> Answer:
        raise RuntimeError("the password is 1234")

    async def refusing(_: WireRequest) -> Answer:
        raise ConfigError("job", 7, "one that is there")

    tokens = Tokens(None)
    listener = listening("127.0.0.1", 0, tokens)
    at = Address.parse(f"http://127.0.0.1:{listener.getsockname()[1]}/")
    application = WireApplication({"/beat": broken, "/kill": refusing}, tokens)
    async with served(application, listener), opened_caller() as caller:
        executor = ExecutorClient(caller, at, token=None)
        assert (await executor.beat()).message == "the call failed; the log has why"
        assert "one that is there" in (await executor.kill(7)).message


async def test_a_log_that_is_refused_is_an_error() -> None:
    async with answering("/log", tokens=Tokens("a")) as (at, _), opened_caller() as caller:
        with pytest.raises(RequestRefused, match="access token is wrong"):
            await ExecutorClient(caller, at, token="b").log(LogRequest(1, 1, 1))


async def test_nobody_listening_is_distinguished_from_nobody_answering() -> None:
    listener = listening("127.0.0.1", 0, Tokens(None))
    at = Address.parse(f"http://127.0.0.1:{listener.getsockname()[1]}/")
    async with opened_caller(timeout_s=0.2) as caller:
        with pytest.raises(RequestTimedOut):
            await ExecutorClient(caller, at, token=None).beat()
        listener.close()
        with pytest.raises(ConnectFailed):
            await ExecutorClient(caller, at, token=None).beat()


async def _hangs_up(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read(10)


async def _redirects(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n")


async def _talks_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n<html/>")


async def _never_ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b" " * 65_536)
        await writer.drain()


@pytest.mark.parametrize(
    ("behave", "error"),
    [
        (_hangs_up, ConnectionLost),
        (_redirects, RemoteProtocolError),
        (_talks_nonsense, RemoteProtocolError),
        (_never_ends, RemoteProtocolError),
    ],
)
async def test_a_peer_that_is_no_executor_is_an_error(
    behave: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    error: type[TidemarkError],
) -> None:
    async with strange_peer(behave) as at, opened_caller(timeout_s=20) as caller:
        with pytest.raises(error):
            await ExecutorClient(caller, at, token=None).beat()


async def _drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


async def test_an_answer_that_drips_is_given_up_in_time() -> None:
    async with strange_peer(_drips) as at, opened_caller(timeout_s=0.2) as caller:
        with pytest.raises(RequestTimedOut):
            await ExecutorClient(caller, at, token=None).beat()


async def test_a_name_is_asked_at_the_address_that_was_checked() -> None:
    async with answering("/beat", tokens=Tokens(None)) as (at, _), opened_caller() as caller:
        named = Address.parse(f"http://localhost:{at.port}/")
        assert (await ExecutorClient(caller, named, token=None).beat()).is_success
        gone = Address.parse("http://no-such-host.invalid/")
        with pytest.raises(ConnectFailed):
            await ExecutorClient(caller, gone, token=None).beat()


def test_without_a_token_nobody_listens_to_other_machines() -> None:
    with pytest.raises(ConfigError):
        listening("0.0.0.0", 0, Tokens(None))
    listening("0.0.0.0", 0, Tokens("secret")).close()


@pytest.mark.parametrize(
    ("headers", "is_taken"),
    [
        ("Host: 127.0.0.1:9999", True),
        ("Host: localhost", True),
        ("Host: [::1]:9999", True),
        ("Host: LOCALHOST:80", True),
        ("Host: rebound.example:9999", False),
        ("Host: 127.0.0.1.rebound.example", False),
        ("Host: [::2]:9999", False),
        ("Host: localhost\r\nOrigin: http://rebound.example", False),
        ("Host: localhost\r\nOrigin: null", False),
    ],
)
async def test_without_a_token_nothing_is_taken_that_a_web_page_may_have_sent(
    headers: str, is_taken: bool
) -> None:
    request = f"POST /beat HTTP/1.1\r\n{headers}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    async with answering("/beat", tokens=Tokens(None)) as (at, asked):
        answer = await raw(at, request.encode())
        assert (len(asked) == 1) is is_taken
        assert (b"from web pages" in answer) is not is_taken
    token = f"XXL-JOB-ACCESS-TOKEN: secret\r\n{headers}"
    async with answering("/beat", tokens=Tokens("secret")) as (at, asked):
        await raw(at, request.replace(headers, token).encode())
        assert len(asked) == 1, "who has the token may ask by any name"
