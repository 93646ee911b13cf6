"""Every request code, known or not, from every kind of account, with every form of credentials.

The table is the contract, written down apart from the engine's own. A row that differs is named
with what was agreed and what was found. Everybody asks about what is the shop's: its topic orders,
its group, its messages, its client, its question.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.namesrv import NameServer, NameServerConfig
from engine.protocol.codes import RequestCode as Code
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message_record import encode_record
from engine.remoting import RpcClient
from engine.remoting.accounts import NOT_GENUINE, NOT_SIGNED
from engine.remoting.signing import ACCESS_KEY, SIGNATURE, Credentials, Signer
from engine.runtime import system_runtime
from tests.integration.broker.cluster import Cluster, broker_config, cluster
from tests.integration.broker.every_request import is_refused, request_body, request_fields
from tests.integration.broker.guarded import ACCESS, BARE, READER, RIVAL, ROOT, SHOP, WRITER
from tests.integration.broker.test_forged_records import HEAD_BYTES, NO_MESSAGE, a_record
from tests.integration.broker.test_what_clients_own import REPLIES, with_replies

ROLES: Mapping[str, Credentials] = {
    "bare": BARE,  # may nothing
    "writer": WRITER,  # orders=PUB
    "reader": READER,  # orders=SUB, orders-group=SUB
    "shop": SHOP,  # orders=PUB|SUB, orders-group=SUB
    "rival": RIVAL,  # private=PUB|SUB, private-group=SUB
    "admin": ROOT,
}
OUTSIDERS = ("bare", "rival")
TABLE = """
                                          bare writer reader shop rival admin
SEND_MESSAGE                              -    yes    -      yes  -     yes
SEND_MESSAGE_V2                           -    yes    -      yes  -     yes
SEND_BATCH_MESSAGE                        -    yes    -      yes  -     yes
RECALL_MESSAGE                            -    yes    -      yes  -     yes
SEND_REPLY_MESSAGE to the question        -    -      yes    yes  -     yes
SEND_REPLY_MESSAGE to no question         -    -      -      -    -     -
SEND_REPLY_MESSAGE into orders            -    yes    -      yes  -     yes
SEND_REPLY_MESSAGE_V2 into orders         -    yes    -      yes  -     yes
END_TRANSACTION of a half message         -    yes    -      yes  -     yes
END_TRANSACTION of a message              -    gone   -      gone -     gone
END_TRANSACTION inside a body             gone gone   gone   gone gone  gone
END_TRANSACTION as the answer to a check  -    yes    -      yes  -     yes
VIEW_MESSAGE_BY_ID of a message           -    -      yes    yes  -     yes
VIEW_MESSAGE_BY_ID of a half message      -    yes    -      yes  -     yes
VIEW_MESSAGE_BY_ID inside a body          gone gone   gone   gone gone  gone
CONSUMER_SEND_MSG_BACK of a message       -    -      yes    yes  -     yes
CONSUMER_SEND_MSG_BACK of a half message  -    -      -      kept -     kept
CONSUMER_SEND_MSG_BACK inside a body      -    -      gone   gone -     gone
QUERY_MESSAGE                             -    -      yes    yes  -     yes
SEARCH_OFFSET_BY_TIMESTAMP                -    -      yes    yes  -     yes
GET_MAX_OFFSET                            -    -      yes    yes  -     yes
GET_MIN_OFFSET                            -    -      yes    yes  -     yes
GET_EARLIEST_MSG_STORETIME                -    -      yes    yes  -     yes
PULL_MESSAGE                              -    -      yes    yes  -     yes
LITE_PULL_MESSAGE                         -    -      yes    yes  -     yes
QUERY_CONSUMER_OFFSET                     -    -      yes    yes  -     yes
UPDATE_CONSUMER_OFFSET                    -    -      yes    yes  -     yes
GET_CONSUMER_LIST_BY_GROUP                -    -      yes    yes  -     yes
QUERY_ASSIGNMENT                          -    -      yes    yes  -     yes
POP_MESSAGE                               -    -      yes    yes  -     yes
PEEK_MESSAGE                              -    -      yes    yes  -     yes
ACK_MESSAGE                               -    -      yes    yes  -     yes
CHANGE_MESSAGE_INVISIBLETIME              -    -      yes    yes  -     yes
NOTIFICATION                              -    -      yes    yes  -     yes
POLLING_INFO                              -    -      yes    yes  -     yes
POP_ROLLBACK                              -    -      yes    yes  -     yes
HEART_BEAT of a consumer                  -    -      yes    yes  -     yes
HEART_BEAT of a producer                  yes  yes    yes    yes  yes   yes
HEART_BEAT as the shop's client           -    -      -      yes  -     -
UNREGISTER_CLIENT of a producer           yes  yes    yes    yes  yes   yes
UNREGISTER_CLIENT of a consumer           -    -      yes    yes  -     yes
UNREGISTER_CLIENT as the shop's client    -    -      -      yes  -     -
LOCK_BATCH_MQ                             -    -      yes    yes  -     yes
LOCK_BATCH_MQ as the shop's client        -    -      -      yes  -     -
UNLOCK_BATCH_MQ                           -    -      yes    yes  -     yes
UNLOCK_BATCH_MQ as the shop's client      -    -      -      yes  -     -
GET_ROUTEINFO_BY_TOPIC                    yes  yes    yes    yes  yes   yes
CHECK_CLIENT_CONFIG                       yes  yes    yes    yes  yes   yes
every other code                          -    -      -      -    -     yes
"""
"""yes: it is let through, whatever becomes of it; -: no permission; gone: no message begins there;
kept: the message waits for its producer, nobody sends it back.
"""
NO_CODES = (0, 1, 16, 99, 331, 1900, 200_049, 10_000_000, 2**31 - 1)
"""Numbers that no request has."""
SHOPS_CLIENT = "shop@its-own"
REPLY_NAMES = {"REPLY_TO_CLIENT": SHOPS_CLIENT, "CORRELATION_ID": "7"}

Ask = Callable[[str], tuple[dict[str, object], bytes]]
"""Fields and body of a request, by the role that sends it."""


# ---- who asks ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """Credentials as somebody may show them."""

    signer: Signer
    leaves_out: tuple[str, ...] = ()
    adds: Mapping[str, str] | None = None

    def sign(self, request: RemotingCommand) -> None:
        self.signer.sign(request)
        for name in self.leaves_out:
            del request.fields[name]
        request.fields.update(self.adds or {})


def wrong_forms(genuine: Credentials) -> Iterator[tuple[str, Signer | None, str]]:
    """Credentials that prove nothing; and the one answer to each."""
    key, secret = genuine.access_key, genuine.secret_key
    yield "no signature", None, NOT_SIGNED
    yield "access key alone", Form(genuine, leaves_out=(SIGNATURE,)), NOT_SIGNED
    yield "signature alone", Form(genuine, leaves_out=(ACCESS_KEY,)), NOT_SIGNED
    yield "guessed secret", Credentials(key, "guess"), NOT_GENUINE
    yield "another's secret", Credentials(key, secret + "-of-another"), NOT_GENUINE
    yield "unknown key", Credentials("nobody", secret), NOT_GENUINE
    yield (
        "a field more than signed",
        Form(genuine, adds={"queueId": "7", "topic": "x"}),
        NOT_GENUINE,
    )
    yield "another's signature", Form(genuine, adds={ACCESS_KEY: "root2"}), NOT_GENUINE
    yield "empty signature", Form(genuine, adds={SIGNATURE: ""}), NOT_GENUINE


class Voice:
    """One connection; many requests at once, answered in their order."""

    def __init__(self, address: str, signer: Signer | None) -> None:
        self._address = address
        takes = {Code.PUSH_REPLY_MESSAGE_TO_CLIENT: lambda _peer, asked: asked.respond(0)}
        self._rpc = RpcClient(system_runtime(), takes, credentials=signer)

    async def ask(self, asked: list[tuple[int, dict[str, object], bytes]]) -> list[RemotingCommand]:
        """The answers; a request is only sent when those before it are."""
        requests = [
            RemotingCommand.request(
                code, {name: str(value) for name, value in fields.items()}, body
            )
            for code, fields, body in asked
        ]
        calls = (self._rpc.invoke(self._address, one, timeout_ms=60_000) for one in requests)
        return list(await asyncio.gather(*calls))

    async def close(self) -> None:
        await self._rpc.close()


# ---- what is asked ----------------------------------------------------------------------------


@dataclass
class Places:
    """Physical offsets of what the shop has stored."""

    message: int
    half: int
    half_offset: int
    inside: int


def producing(client_id: str) -> bytes:
    fields = {"clientID": client_id, "producerDataSet": [{"groupName": "p"}], "consumerDataSet": []}
    return json.dumps(fields).encode()


def rows_about(places: Places) -> dict[str, Ask]:
    """How each row of the table is asked that needs more than its code."""

    def at(place: int, **more: object) -> Ask:
        return lambda role: (request_fields("orders", "orders-group", place) | more, b"")

    def reply(correlation_id: str) -> Ask:
        words = REPLY_NAMES | {"CORRELATION_ID": correlation_id}
        text = "".join(f"{name}\x01{value}\x02" for name, value in words.items())
        return lambda role: (request_fields(REPLIES, "g") | {"properties": text}, b"reply")

    def as_client(code: Code) -> Ask:
        body = producing(SHOPS_CLIENT)
        if code is not Code.HEART_BEAT:
            body = request_body(code, "orders", "orders-group", client_id=SHOPS_CLIENT)
        fields = {"clientID": SHOPS_CLIENT, "producerGroup": "nobody's"}
        return lambda role: (dict(fields), body)

    def of_producer(role: str) -> tuple[dict[str, object], bytes]:
        client_id = f"{role}@1"
        return {"clientID": client_id, "producerGroup": "p"}, producing(client_id)

    ending = {"producerGroup": "p", "tranStateTableOffset": places.half_offset}
    ending |= {"commitOrRollback": 0}  # "Unknown" is judged as the others are, and ends nothing.
    committing = ending | {"commitOrRollback": 8}
    return {
        "SEND_REPLY_MESSAGE to the question": reply("7"),
        "SEND_REPLY_MESSAGE to no question": reply("8"),
        "END_TRANSACTION of a half message": at(places.half, **ending),
        "END_TRANSACTION of a message": at(places.message, **committing),
        "END_TRANSACTION inside a body": at(places.inside, **committing),
        "END_TRANSACTION as the answer to a check": at(
            places.half, **ending, topic="RMQ_SYS_TRANS_HALF_TOPIC"
        ),
        "VIEW_MESSAGE_BY_ID of a message": at(places.message),
        "VIEW_MESSAGE_BY_ID of a half message": at(places.half),
        "VIEW_MESSAGE_BY_ID inside a body": at(places.inside),
        "CONSUMER_SEND_MSG_BACK of a message": at(places.message),
        "CONSUMER_SEND_MSG_BACK of a half message": at(places.half),
        "CONSUMER_SEND_MSG_BACK inside a body": at(places.inside),
        "HEART_BEAT of a producer": of_producer,
        "HEART_BEAT as the shop's client": as_client(Code.HEART_BEAT),
        "UNREGISTER_CLIENT of a producer": of_producer,
        "UNREGISTER_CLIENT as the shop's client": as_client(Code.UNREGISTER_CLIENT),
        "LOCK_BATCH_MQ as the shop's client": as_client(Code.LOCK_BATCH_MQ),
        "UNLOCK_BATCH_MQ as the shop's client": as_client(Code.UNLOCK_BATCH_MQ),
    }


def table_rows() -> dict[str, dict[str, str]]:
    """Row → role → word."""
    head, *lines = TABLE.strip("\n").split("\n")
    roles = head.split()
    assert roles == list(ROLES)
    rows = {}
    for line in lines:
        at = head.index("bare")
        rows[line[:at].rstrip()] = dict(zip(roles, line[at:].split(), strict=True))
    return rows


def word_for(answer: RemotingCommand) -> str:
    remark = answer.remark or ""
    if is_refused(answer):
        return "-"
    if answer.code == ResponseCode.SYSTEM_ERROR and NO_MESSAGE in remark:
        return "gone"
    if answer.code == ResponseCode.SYSTEM_ERROR and "no consumer has been given it" in remark:
        return "kept"
    return "yes"


async def found_at(
    address: str, places: Places, roles: Mapping[str, Credentials]
) -> dict[str, dict[str, str]]:
    """The table as the party at the address keeps it, row by row, for these roles."""
    rows, special = table_rows(), rows_about(places)
    named = {name.partition(" ")[0] for name in rows} - {"every"}
    others = [code for code in Code if code.name not in named]
    found: dict[str, dict[str, str]] = {name: {} for name in rows}
    for role, credentials in roles.items():
        voice, asked, of_row = Voice(address, credentials), [], []
        for name in rows:
            if name == "every other code":
                continue
            code = Code[name.partition(" ")[0]]
            plain = (
                request_fields("orders", "orders-group", client_id=f"{role}@1"),
                request_body(code, "orders", "orders-group", client_id=f"{role}@1"),
            )
            asked.append((int(code), *(special[name](role) if name in special else plain)))
            of_row.append(name)
        for number in (*others, *NO_CODES):  # Without names, so that an administrator harms none.
            fields = {} if role == "admin" else request_fields("orders", "orders-group")
            asked.append((int(number), fields, b""))
            of_row.append("every other code")
        for name, answer, (number, _, _) in zip(of_row, await voice.ask(asked), asked, strict=True):
            word = word_for(answer)
            known = found[name].setdefault(role, word)
            if known != word:
                found[name][role] = f"{known}, but {number}: {word} ({answer.remark})"
        await voice.close()
    return found


# ---- the broker -------------------------------------------------------------------------------


async def set_the_scene(running: Cluster, shop: Voice) -> Places:
    """The shop's message, half message, forged record, client and question."""
    plain = request_fields("orders", "orders-group") | {"producerGroup": "p"}
    question = "".join(f"{name}\x01{value}\x02" for name, value in REPLY_NAMES.items())
    half = plain | {"properties": "TRAN_MSG\x01true\x02PGROUP\x01p\x02", "sysFlag": 4}
    root = Voice(running.broker.address, ROOT)
    [made] = await root.ask([(Code.SEND_MESSAGE, plain, b"the topic is made")])
    await root.close()
    assert made.code == ResponseCode.SUCCESS, made.remark
    found, asked, begun = await shop.ask(
        [
            (Code.HEART_BEAT, {}, producing(SHOPS_CLIENT)),
            (Code.SEND_MESSAGE, plain | {"properties": question}, b"question"),
            (Code.SEND_MESSAGE, half, b"half"),
        ]
    )
    place = running.broker.state.store.physical_max + HEAD_BYTES
    forged = a_record("RMQ_SYS_TRANS_HALF_TOPIC", place)
    body = bytes(encode_record(forged))
    [planted] = await shop.ask([(Code.SEND_MESSAGE, plain, body)])
    for answer in (found, asked, begun, planted):
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert int(planted.fields["msgId"][16:], 16) + HEAD_BYTES == place
    return Places(
        message=int(asked.fields["msgId"][16:], 16),
        half=int(begun.fields["msgId"][16:], 16),
        half_offset=int(begun.fields["queueOffset"]),
        inside=place,
    )


def state_of(running: Cluster) -> dict[str, object]:
    """What a refused request must leave as it is."""
    state = running.broker.state
    return {
        "log": state.store.physical_max,
        "topics": sorted(config.topic_name for config in state.topics.all()),
        "members": [(group.name, group.member_ids()) for group in state.groups.all()],
        "producers": [
            (name, [member.client_id for member in state.producers.members(name)])
            for name in state.producers.names()
            if name != "p"  # Anybody may join it, which is worth nothing.
        ],
        "offset": state.offsets.committed("orders-group", "orders", 0),
        "locks": state.locks.lock("orders-group", SHOPS_CLIENT, [], now_ms=0),
    }


async def test_the_table_holds_for_every_code_and_every_account(tmp_path: Path) -> None:
    access = with_replies(ACCESS)
    async with cluster(broker_config(tmp_path, access=access)) as running:
        address, shop = running.broker.address, Voice(running.broker.address, SHOP)
        places = await set_the_scene(running, shop)
        before = state_of(running)
        found = await found_at(address, places, {role: ROLES[role] for role in OUTSIDERS})
        assert state_of(running) == before, "what was refused has changed nothing"
        insiders = [role for role in ROLES if role not in (*OUTSIDERS, "shop")]
        for role in (*insiders, "shop"):  # Whose client comes and goes: last.
            for name, words in (await found_at(address, places, {role: ROLES[role]})).items():
                found[name] |= words
        await shop.close()
    assert differing(found) == []


def differing(found: Mapping[str, Mapping[str, str]]) -> list[str]:
    return [
        f"{name} by {role}: agreed {agreed!r}, found {found[name][role]!r}"
        for name, words in table_rows().items()
        for role, agreed in words.items()
        if found[name][role] != agreed
    ]


async def let_in_wrongly(address: str) -> list[str]:
    """Every code, by every account, with credentials that prove nothing: what was not refused."""
    wrong = []
    asked = [
        (int(code), request_fields("orders", "orders-group"), request_body(code, "orders", "g"))
        for code in (*Code, *NO_CODES)
    ]
    for role, genuine in ROLES.items():
        for form, signer, words in wrong_forms(genuine):
            voice = Voice(address, signer)
            for answer, (code, _, _) in zip(await voice.ask(asked), asked, strict=True):
                if (answer.code, answer.remark) != (ResponseCode.NO_PERMISSION, words):
                    wrong.append(f"{code} by {role}, {form}: {answer.code} {answer.remark}")
            await voice.close()
    return wrong


async def test_credentials_that_prove_nothing_open_nothing_at_a_broker(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, access=ACCESS)) as running:
        before = state_of(running)
        assert await let_in_wrongly(running.broker.address) == []
        assert state_of(running) == before


# ---- the name server --------------------------------------------------------------------------

OPEN_AT_A_NAME_SERVER = {Code.GET_ROUTEINFO_BY_TOPIC}
"""What a name server does for every account; all else that it does is for administrators:
registrations, key-value settings, its configuration.
"""


async def test_a_name_server_does_for_an_account_what_it_does_for_all_and_nothing_else() -> None:
    server = NameServer(system_runtime(), NameServerConfig(port=0, access=ACCESS))
    address = f"127.0.0.1:{await server.start()}"
    assert await let_in_wrongly(address) == []
    done = []
    for role, credentials in ROLES.items():
        voice = Voice(address, credentials)
        fields = {} if role == "admin" else request_fields("orders", "orders-group")
        codes = [*Code, *NO_CODES]
        answers = await voice.ask(
            [(int(code), fields, request_body(code, "orders", "g")) for code in codes]
        )
        for code, answer in zip(codes, answers, strict=True):
            passed = word_for(answer) == "yes"
            is_served = answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            if role == "admin" and not passed and code not in STORED:
                done.append(f"{code} by an administrator: {answer.remark}")
            if role != "admin" and passed and is_served and code not in OPEN_AT_A_NAME_SERVER:
                done.append(f"{code} by {role}: {answer.code} {answer.remark}")
        await voice.close()
    await server.stop()
    assert done == []


STORED = {Code.END_TRANSACTION, Code.VIEW_MESSAGE_BY_ID, Code.CONSUMER_SEND_MSG_BACK}
