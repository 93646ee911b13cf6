"""Accounts of the access tests, and clients that sign with them (or wrongly, or not at all)."""

from __future__ import annotations

from engine.protocol.command import RemotingCommand
from engine.remoting import RpcClient
from engine.remoting.access import Access
from engine.remoting.accounts import Account, Permission
from engine.remoting.signing import Credentials
from engine.runtime import system_runtime

ROOT = Credentials("root", "canary-secret-of-root")
SHOP = Credentials("shop", "canary-secret-of-shop")
RIVAL = Credentials("rival", "canary-secret-of-rival")
WRITER = Credentials("writer", "canary-secret-of-writer")
READER = Credentials("reader", "canary-secret-of-reader")
WATCHER = Credentials("watcher", "canary-secret-of-watcher")
BARE = Credentials("bare", "canary-secret-of-bare")
STRANGER = Credentials("nobody", "canary-secret-of-nobody")
GUESSER = Credentials("shop", "canary-guess")
ACCESS = Access(
    accounts=(
        Account(ROOT, admin=True),
        Account(
            SHOP,
            topic_perms={"orders": Permission.PUB | Permission.SUB},
            group_perms={"orders-group": Permission.SUB},
        ),
        Account(
            RIVAL,
            topic_perms={"private": Permission.PUB | Permission.SUB},
            group_perms={"private-group": Permission.SUB},
        ),
        Account(WRITER, topic_perms={"orders": Permission.PUB}),
        Account(
            READER,
            topic_perms={"orders": Permission.SUB},
            group_perms={"orders-group": Permission.SUB},
        ),
        Account(WATCHER, watcher=True),
        Account(BARE),
    )
)
"""The shop has the topic orders and its group, the rival the topic private and its own; of the
shop's, the writer may only write and the reader only read. The watcher may ask how
all stand. Bare is genuine and may nothing.
"""
FILE = f"""
[[accounts]]
accessKey = "{ROOT.access_key}"
secretKey = "{ROOT.secret_key}"
admin = true

[[accounts]]
accessKey = "{SHOP.access_key}"
secretKey = "{SHOP.secret_key}"
topicPerms = ["orders=PUB|SUB"]
groupPerms = ["orders-group=SUB"]
"""


class Caller:
    """One connection that signs every request with `credentials`, if it has any."""

    def __init__(self, address: str, credentials: Credentials | None) -> None:
        self._address = address
        self._rpc = RpcClient(system_runtime(), credentials=credentials)

    async def ask(self, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        """The response, whatever its code."""
        texts = {name: str(value) for name, value in fields.items()}
        return await self._rpc.invoke(
            self._address, RemotingCommand.request(code, texts, body), timeout_ms=20_000
        )

    async def close(self) -> None:
        """End the connection."""
        await self._rpc.close()
