"""Row C11: RocketMQ's users and rules change a group's accounts, or are refused."""

from __future__ import annotations

from typing import cast

import pytest

from engine.broker.accounts import AgreedAccounts
from engine.broker.handlers.account_rules import rules_of, with_rules, without_rules
from engine.broker.handlers.accounts import AccountHandlers
from engine.foundation.errors import ConfigError, RequestRefused
from engine.protocol import fastjson
from engine.protocol.bodies_auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting import Peer
from engine.remoting.access import Access, account_from_document, account_to_document
from engine.remoting.accounts import Account, Accounts, Permission
from engine.remoting.gate import Gate
from engine.remoting.signing import Credentials

ROOT = Account(Credentials("root", "secret-of-root"), admin=True)
SHOP = Account(
    Credentials("shop", "secret-of-shop"),
    watcher=True,
    default_topic_perm=Permission.SUB,
    topic_perms={"orders": Permission.PUB | Permission.SUB, "hidden": Permission.DENY},
    group_perms={"readers": Permission.SUB},
)
FILE = Access(accounts=(ROOT,))


def table(access: Access = FILE) -> AgreedAccounts:
    accounts = Accounts(access.accounts) if access.accounts else None
    return AgreedAccounts(Gate(accounts), access)


def ask(accounts: AgreedAccounts, code: RequestCode, body: bytes = b"", **fields: str) -> bytes:
    handler = AccountHandlers(accounts=accounts).handlers()[code]
    answer = handler(cast("Peer", None), RemotingCommand.request(code, fields, body))
    assert isinstance(answer, RemotingCommand)
    return bytes(answer.body)


def rules(resource: str, *actions: str, decision: str = "Allow", ip: str = "") -> AclInfo:
    entry = PolicyEntryInfo(resource, [*actions], [ip] if ip else None, decision)
    return AclInfo(policies=[PolicyInfo("Custom", [entry])])


def test_rules_say_all_that_an_account_may() -> None:
    made = with_rules(Account(SHOP.credentials), AclInfo.decode(rules_of(SHOP).encode()))
    assert made == SHOP
    assert without_rules(made, None) == Account(SHOP.credentials)
    assert without_rules(made, "Topic:hidden").topic_perms == {"orders": Permission(3)}
    assert not without_rules(made, "Cluster:*").watcher
    assert account_from_document(account_to_document(SHOP)) == SHOP


@pytest.mark.parametrize(
    "refused",
    [
        rules("Topic:orders", "Pub", ip="10.0.0.1"),
        rules("Topic:orders", "Create"),
        rules("Topic:orders", "Sub", decision="Deny"),
        rules("Topic:orders"),
        rules("Topic:ord*", "Pub"),
        rules("Topic:%RETRY%readers", "Sub"),
        rules("Namespace:one", "Pub"),
        rules("Cluster:*", "Update"),
        rules("Group:", "Sub"),
    ],
)
def test_a_rule_that_no_account_can_say_is_refused(refused: AclInfo) -> None:
    with pytest.raises(RequestRefused):
        with_rules(SHOP, refused)


def test_users_are_made_changed_and_removed() -> None:
    accounts = table()
    words = UserInfo(password="first", user_type="Normal").encode()
    ask(accounts, RequestCode.AUTH_CREATE_USER, words, username="shop")
    acl = rules("Topic:orders", "Pub").encode()
    ask(accounts, RequestCode.AUTH_CREATE_ACL, acl, subject="User:shop")
    ask(accounts, RequestCode.AUTH_UPDATE_USER, b'{"password":"second"}', username="shop")
    shop = accounts.find("shop")
    assert shop is not None
    assert shop.credentials.secret_key == "second"
    assert shop.topic_perms == {"orders": Permission.PUB}
    listed = ask(accounts, RequestCode.AUTH_LIST_USER)
    assert [one["username"] for one in fastjson.loads(listed)] == ["root", "shop"]
    assert b"Super" in ask(accounts, RequestCode.AUTH_GET_USER, username="root")
    found = ask(accounts, RequestCode.AUTH_LIST_ACL, resource_filter="orders")
    assert [one["subject"] for one in fastjson.loads(found)] == ["User:shop"]
    assert all(b"sec" not in one for one in (listed, found))
    ask(accounts, RequestCode.AUTH_DELETE_ACL, subject="User:shop", resource="Topic:orders")
    assert ask(accounts, RequestCode.AUTH_GET_ACL, subject="User:shop").find(b"orders") < 0
    ask(accounts, RequestCode.AUTH_DELETE_USER, username="shop")
    with pytest.raises(RequestRefused) as gone:
        ask(accounts, RequestCode.AUTH_GET_USER, username="shop")
    assert gone.value.code == ResponseCode.USER_NOT_EXIST


@pytest.mark.parametrize(
    ("code", "body", "fields"),
    [
        (RequestCode.AUTH_CREATE_USER, b'{"password":"x"}', {"username": "root"}),
        (RequestCode.AUTH_CREATE_USER, b"{}", {"username": "other"}),
        (RequestCode.AUTH_CREATE_USER, b'{"password":"hidden', {"username": "other"}),
        (RequestCode.AUTH_UPDATE_USER, b'{"userType":"Owner"}', {"username": "root"}),
        (RequestCode.AUTH_UPDATE_USER, b'{"userStatus":"disable"}', {"username": "root"}),
        (RequestCode.AUTH_UPDATE_USER, b'{"userType":"Normal"}', {"username": "root"}),
        (RequestCode.AUTH_DELETE_USER, b"", {"username": "root"}),
        (RequestCode.AUTH_CREATE_ACL, rules("Topic:x", "Pub").encode(), {"subject": "User:root"}),
        (RequestCode.AUTH_GET_ACL, b"", {"subject": "root"}),
    ],
)
def test_what_makes_no_sense_changes_nothing(
    code: RequestCode, body: bytes, fields: dict[str, str]
) -> None:
    accounts = table()
    with pytest.raises(RequestRefused) as error:
        ask(accounts, code, body, **fields)
    assert error.value.code == ResponseCode.INVALID_PARAMETER
    assert "hidden" not in str(error.value)
    assert accounts.all() == [ROOT]
    assert not accounts.is_agreed


def test_a_broker_without_accounts_gets_none_by_request() -> None:
    with pytest.raises(RequestRefused):
        table(Access()).put(ROOT)


def test_what_the_group_agreed_on_counts_and_the_file_signs() -> None:
    accounts = table()
    gate = accounts._gate
    assert accounts.all() == [ROOT]
    other = Account(Credentials("other", "secret-of-other"), admin=True)
    accounts.hold([account_to_document(other), account_to_document(SHOP)])
    assert accounts.all() == [other, SHOP]
    request = RemotingCommand.request(RequestCode.REGISTER_BROKER, {})
    gate.sign(request)
    assert request.fields["AccessKey"] == "root"
    with pytest.raises(ConfigError):
        accounts._take_file(Accounts((ROOT, SHOP)))
    accounts.hold([])
    accounts._take_file(Accounts((ROOT, SHOP)))
    assert accounts.all() == [ROOT, SHOP]


def test_while_the_log_is_read_the_gate_judges_as_before() -> None:
    """What a snapshot says was so once: who was removed since does not pass meanwhile."""
    gate, of_both = (
        Gate(Accounts(FILE.accounts)),
        [account_to_document(one) for one in (ROOT, SHOP)],
    )
    accounts = AgreedAccounts(gate, FILE)
    accounts.hold(of_both)
    changes = gate.changes
    with accounts.loading():
        accounts.hold(())
        accounts.hold(of_both)
    assert gate.changes == changes
    with accounts.loading():
        accounts.hold(of_both)
        accounts.hold(of_both[:1])
        assert gate.changes == changes
    assert (gate.changes, accounts.find("shop")) == (changes + 1, None)
