"""Signed requests, accounts and their file: RocketMQ 5.5's own signatures, and what is refused.

The golden signatures were made by RocketMQ's AclClientRPCHook.
"""

from __future__ import annotations

from typing import Any

import pytest

from engine.foundation.errors import ConfigError, RequestRefused
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting.access import Access, read_access, read_credentials
from engine.remoting.accounts import (
    NOT_GENUINE,
    Account,
    Accounts,
    Demand,
    Permission,
    Resource,
    group_demand,
    topic_demand,
)
from engine.remoting.signing import SIGNATURE, UNIQUE_KEY_QUERY, Credentials
from engine.runtime import TlsMode

PUB, SUB = Permission.PUB, Permission.SUB
ROOT = Account(Credentials("root", "secret-of-root"), admin=True)
SHOP = Account(
    Credentials("shop", "secret-of-shop"),
    topic_perms={"orders": PUB | SUB, "prices": SUB, "private": Permission.DENY},
    group_perms={"orders-group": SUB},
    default_topic_perm=SUB,
)
GOLDEN = [
    (
        Credentials("shop", "secret-of-shop", "token-1"),
        {"b": "orders", "a": "pg", "Zed": "1", "i": "KEYS\x01k\x02", "é": "😀", "empty": ""},
        b"hello",
        "5/RdrYA8Sgbwgu42g6LlDhpnmA8=",
    ),
    (
        Credentials("shop", "secret-of-shop"),
        {"topic": "orders"},
        b"",
        "bSUME4ZKPkWpK8muaOU8og1LkhM=",
    ),
]


def signed(credentials: Credentials, **fields: str) -> RemotingCommand:
    """A request as a client with these credentials sends it."""
    request = RemotingCommand.request(105, fields, b"body")
    credentials.sign(request)
    return request


@pytest.mark.parametrize(("credentials", "fields", "body", "signature"), GOLDEN)
def test_a_request_is_signed_as_rocketmq_s_client_signs_it(
    credentials: Credentials, fields: dict[str, str], body: bytes, signature: str
) -> None:
    request = RemotingCommand.request(310, fields, body)
    credentials.sign(request)
    assert request.fields[SIGNATURE] == signature
    credentials.sign(request)
    assert request.fields[SIGNATURE] == signature, "signing again changes nothing"


def test_who_signed_is_known() -> None:
    accounts = Accounts([ROOT, SHOP])
    assert accounts.authenticated(signed(SHOP.credentials, topic="orders")) is SHOP
    assert accounts.own is ROOT.credentials


def test_clients_up_to_4_9_3_add_a_field_after_they_have_signed() -> None:
    accounts = Accounts([ROOT, SHOP])
    request = signed(SHOP.credentials, topic="orders")
    request.fields[UNIQUE_KEY_QUERY] = "true"
    request.version = 399
    assert accounts.authenticated(request) is SHOP
    request.version = 401
    with pytest.raises(RequestRefused):
        accounts.authenticated(request)


FORGERIES: dict[str, Any] = {
    "a key that nobody has": lambda r: r.fields.update(AccessKey="nobody"),
    "a signature of another": lambda r: Credentials("shop", "guessed").sign(r),
    "a changed value": lambda r: r.fields.update(topic="prices"),
    "a field more": lambda r: r.fields.update(queueId="1"),
    "a changed body": lambda r: setattr(r, "body", b"other"),
    "an empty signature": lambda r: r.fields.update(Signature=""),
    "a signature that is no ASCII": lambda r: r.fields.update(Signature="é😀"),
    "the key of another account": lambda r: r.fields.update(AccessKey="root"),
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_a_forgery_is_refused_in_the_same_words_whatever_it_is(forge: Any) -> None:
    request = signed(SHOP.credentials, topic="orders")
    forge(request)
    with pytest.raises(RequestRefused) as refused:
        Accounts([ROOT, SHOP]).authenticated(request)
    assert (refused.value.code, refused.value.remark) == (ResponseCode.NO_PERMISSION, NOT_GENUINE)


def test_what_is_not_signed_is_refused() -> None:
    with pytest.raises(RequestRefused, match="not signed"):
        Accounts([ROOT]).authenticated(RemotingCommand.request(105, {"topic": "orders"}))


@pytest.mark.parametrize(
    ("demand", "allowed"),
    [
        (topic_demand("orders", PUB), True),
        (topic_demand("prices", SUB), True),
        (topic_demand("prices", PUB), False),
        (topic_demand("private", SUB), False),
        (topic_demand("unlisted", SUB), True),
        (topic_demand("unlisted", PUB), False),
        (group_demand("orders-group"), True),
        (group_demand("other-group"), False),
        (topic_demand("%RETRY%orders-group", PUB), True),
        (topic_demand("%DLQ%orders-group", SUB), True),
        (topic_demand("%RETRY%other-group", SUB), False),
        (topic_demand("SCHEDULE_TOPIC_XXXX", SUB), False),
        (topic_demand("RMQ_SYS_TRANS_HALF_TOPIC", SUB), False),
        (topic_demand("rmq_sys_anything", SUB), False),
        (topic_demand("DefaultCluster_REPLY_TOPIC", SUB), False),
        (topic_demand("TIDEMARK_DLQ_DISCARDS", SUB), False),
        (Demand(Resource.GROUP, "CID_RMQ_SYS_TRANS", SUB), False),
    ],
)
def test_lists_win_over_defaults_and_groups_own_their_topics(
    demand: Demand, *, allowed: bool
) -> None:
    assert SHOP.may(demand) is allowed
    assert ROOT.may(demand)


def test_a_default_lets_reply_but_not_read_replies() -> None:
    account = Account(Credentials("all", "secret"), default_topic_perm=PUB | SUB)
    assert account.may(topic_demand("DefaultCluster_REPLY_TOPIC", PUB))
    assert not account.may(topic_demand("DefaultCluster_REPLY_TOPIC", SUB))


FILE = """
[tls]
certificate = "server.pem"
key = "/etc/keys/server.key"
clientAuthorities = "ca.pem"
mode = "permissive"
authorities = "ca.pem"

[[accounts]]
accessKey = "root"
secretKey = "secret-of-root"
admin = true

[[accounts]]
accessKey = "shop"
secretKey = "secret-of-shop"
defaultTopicPerm = "SUB"
topicPerms = ["orders=PUB|SUB", "private = DENY"]
groupPerms = ["orders-group=SUB"]
"""


def test_a_file_of_accounts_and_certificates_is_read() -> None:
    access = read_access(FILE, "/etc/tidemark/access.toml")
    root, shop = access.accounts
    assert root.admin
    assert shop.topic_perms == {"orders": PUB | SUB, "private": Permission.DENY}
    assert (shop.default_topic_perm, shop.default_group_perm) == (SUB, Permission.DENY)
    assert Accounts(access.accounts).own == root.credentials
    assert access.server_tls is not None
    assert access.server_tls.certificate == "/etc/tidemark/server.pem"
    assert access.server_tls.key == "/etc/keys/server.key"
    assert access.server_tls.mode is TlsMode.PERMISSIVE
    assert access.client_tls is not None
    assert access.client_tls.certificate == "/etc/tidemark/server.pem", "shown where it is asked"


ADMIN = '[[accounts]]\naccessKey="root"\nsecretKey="SECRET"\nadmin=true\n'
USER = '[[accounts]]\naccessKey="u"\nsecretKey="SECRET"\n'
WRONG = {
    "no TOML": ("accounts = [", "TOML"),
    "nothing": ("", "accounts"),
    "no administrator": (USER, "admin = true"),
    "the same key twice": (ADMIN + ADMIN, "once"),
    "a misspelt key": (ADMIN + USER + 'topicPerm=["a=SUB"]', "topicPerm"),
    "an address that needs no signature": (ADMIN + 'whiteRemoteAddress="*"', "whiteRemoteAddress"),
    "a permission nobody knows": (ADMIN + USER + 'defaultTopicPerm="ALL"', "DENY, PUB, SUB"),
    "a list without permissions": (ADMIN + USER + 'topicPerms=["orders"]', "name=permission"),
    "a topic twice": (ADMIN + USER + 'topicPerms=["a=SUB","a=DENY"]', "once"),
    "a group's topic among topics": (ADMIN + USER + 'topicPerms=["%RETRY%g=SUB"]', "groupPerms"),
    "an administrator with lists": (ADMIN + 'topicPerms=["a=DENY"]', "leave its permissions out"),
    "an empty secret": ('[[accounts]]\naccessKey="a"\nsecretKey=""\n', "secretKey"),
    "a certificate without a key": (ADMIN + '[tls]\ncertificate="c"', "certificate and key"),
    "a mode nobody knows": (ADMIN + '[tls]\ncertificate="c"\nkey="k"\nmode="off"', "mode"),
}


@pytest.mark.parametrize(("text", "complaint"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_refused_by_name_and_its_secrets_are_not_shown(
    text: str, complaint: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        read_access(text, "access.toml")
    assert complaint in str(refused.value)
    assert "SECRET" not in str(refused.value)


def test_secrets_are_in_no_representation() -> None:
    access = read_access(FILE, "access.toml")
    credentials, _ = read_credentials(
        'accessKey="a"\nsecretKey="secret-of-client"\nsecurityToken="secret-token"', "c.toml"
    )
    for value in (access, access.accounts, credentials, access.gate(), Access()):
        assert "secret" not in repr(value).replace("secret_key=", "")


def test_a_client_s_file_is_read() -> None:
    credentials, tls = read_credentials(
        'accessKey="a"\nsecretKey="s"\n[tls]\nauthorities="ca.pem"', "/etc/client.toml"
    )
    assert credentials == Credentials("a", "s")
    assert tls is not None
    assert tls.authorities == "/etc/ca.pem"
    with pytest.raises(ConfigError, match="secretKey"):
        read_credentials('accessKey="a"', "c.toml")
