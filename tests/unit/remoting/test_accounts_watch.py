"""Row Access: accounts that change while their party runs; no files, no sockets."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from engine.foundation.errors import ConfigError, RequestRefused
from engine.protocol.codes import RequestCode
from engine.protocol.command import RemotingCommand
from engine.remoting.access import Access
from engine.remoting.accounts import Account, Permission
from engine.remoting.gate import Gate
from engine.remoting.signing import Credentials
from tests.integration.broker.guarded import GUESSER, ROOT, SHOP

PUB = Permission.PUB
ROOT_ACCOUNT = Account(ROOT, admin=True)
SHOP_ACCOUNT = Account(SHOP, topic_perms={"orders": PUB})


class Source:
    """A file whose words the test says."""

    name = "access.toml"

    def __init__(self, *accounts: Account) -> None:
        self.written: tuple[Account, ...] | ConfigError = accounts
        self.writes = self.reads = 0

    def write(self, accounts: tuple[Account, ...] | ConfigError) -> None:
        self.written = accounts
        self.writes += 1

    def stamp(self) -> object:
        return self.writes

    def accounts(self) -> tuple[Account, ...]:
        self.reads += 1
        if isinstance(self.written, ConfigError):
            raise self.written
        return self.written


def watched(source: Source, *accounts: Account) -> tuple[Gate, Callable[[], None]]:
    gate = Access(accounts, source=source).gate()
    assert gate.look is not None
    return gate, gate.look


class NoPeer:
    address = "10.0.0.1:1"


def passes(gate: Gate, credentials: Credentials, topic: str = "orders") -> bool:
    fields = {"producerGroup": "p", "topic": topic, "queueId": "0"}
    request = RemotingCommand.request(RequestCode.SEND_MESSAGE, fields)
    credentials.sign(request)
    try:
        gate.check(NoPeer(), request)  # type: ignore[arg-type]
    except RequestRefused:
        return False
    return True


def test_accounts_come_go_and_change_with_the_next_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    source = Source(ROOT_ACCOUNT)
    gate, look = watched(source, ROOT_ACCOUNT)
    assert not passes(gate, SHOP)
    source.write((ROOT_ACCOUNT, SHOP_ACCOUNT))
    assert not passes(gate, SHOP), "nobody has looked yet"
    look()
    assert passes(gate, SHOP)
    source.write((ROOT_ACCOUNT, Account(SHOP, topic_perms={"others": PUB})))
    look()
    assert not passes(gate, SHOP)
    assert passes(gate, SHOP, "others")
    source.write((ROOT_ACCOUNT,))
    look()
    assert not passes(gate, SHOP, "others")
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "2 accounts of access.toml are in force: added shop",
        "2 accounts of access.toml are in force: changed shop",
        "1 accounts of access.toml are in force: removed shop",
    ]


@pytest.mark.parametrize(
    "found",
    [
        ConfigError("access", "access.toml", "a TOML file"),
        (SHOP_ACCOUNT,),
        (ROOT_ACCOUNT, ROOT_ACCOUNT),
        (),
    ],
    ids=["no TOML", "no administrator", "one key twice", "no account"],
)
def test_a_file_that_makes_no_sense_changes_nothing(
    found: tuple[Account, ...] | ConfigError, caplog: pytest.LogCaptureFixture
) -> None:
    accounts = (ROOT_ACCOUNT, SHOP_ACCOUNT)
    source = Source(*accounts)
    gate, look = watched(source, *accounts)
    look()
    source.write(found)
    look()
    look()
    assert passes(gate, SHOP)
    assert passes(gate, ROOT)
    assert not passes(gate, GUESSER)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("accounts stay as they were, for their file is refused: ")
    assert "canary" not in line
    source.write((ROOT_ACCOUNT,))
    look()
    assert not passes(gate, SHOP), "the repaired file counts"


def test_a_file_that_nobody_touched_is_not_read_again() -> None:
    source = Source(ROOT_ACCOUNT)
    _, look = watched(source, ROOT_ACCOUNT)
    for _ in range(5):
        look()
    assert source.reads == 1


def test_a_party_that_began_without_accounts_goes_on_without(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = Source(ROOT_ACCOUNT)
    gate, look = watched(source)
    look()
    assert not gate.has_accounts
    assert "restart" in caplog.text


def test_the_party_signs_as_its_first_administrator_does_now() -> None:
    source = Source(ROOT_ACCOUNT)
    gate, look = watched(source, ROOT_ACCOUNT)
    follower = Credentials("second", "canary-other")
    source.write((Account(follower, admin=True), ROOT_ACCOUNT))
    look()
    request = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)
    gate.sign(request)
    assert request.fields["AccessKey"] == "second"
