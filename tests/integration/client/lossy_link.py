"""A link in front of a broker that can lose what the broker answers (the request is carried out,
and the sender never hears of it), or what it is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class LossyLink:
    """Passes bytes both ways; while `losing`, answers fall into the gap; while `losing_requests`,
    requests do.
    """

    def __init__(self, broker: str) -> None:
        host, _, port = broker.rpartition(":")
        self._broker = (host, int(port))
        self.address = ""
        self.losing = False
        self.losing_requests = False
        self.lost_bytes = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's connection."""
        with suppress(ConnectionError):
            to_broker = await asyncio.open_connection(*self._broker)
            await asyncio.gather(
                self._pass(reader, to_broker[1], is_answer=False),
                self._pass(to_broker[0], writer, is_answer=True),
            )

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                if self.losing if is_answer else self.losing_requests:
                    self.lost_bytes += len(data)
                    continue
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()


@asynccontextmanager
async def lossy_link(broker: str) -> AsyncIterator[LossyLink]:
    """A link to `broker` on a port of its own."""
    link = LossyLink(broker)
    server = await asyncio.start_server(link.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    link.address = f"{host}:{port}"
    try:
        yield link
    finally:
        server.close()
