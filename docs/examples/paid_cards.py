"""One payment, one card: a membership is paid in one system, and another issues the card.

The notice of the payment may be sent twice (the sender heard no answer) and may arrive twice (the
consumer's acknowledgement was lost). Twice the money for one card, or two cards for one payment, is
what must not happen. Two ids prevent it:

  UNIQ_KEY       names the message. On a topic made with `+message.deduplication=true` the broker
                 stores a resend of it once.
  payment id     names the payment, and travels in KEYS. The consumer notes it in the transaction
                 that issues the card, so a payment that arrives again changes nothing.

Run it beside `tidemark engine --store var/store`:

    python docs/examples/paid_cards.py 127.0.0.1:9876 cards.db
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import Awaitable

from engine.client import ClientConfig, ConsumeFromWhere, ConsumerConfig, Producer, PushConsumer
from engine.client.consuming.idempotence import SqlGuard, once_per_key
from engine.client.sql import SqlDialect
from engine.protocol.message import Message, MessageExt
from engine.runtime import system_runtime

TOPIC, GROUP = "paid", "card-issuer"


def payment_notice(payment_id: str, member: str) -> Message:
    """What the payment system sends; `keys` is the business key."""
    message = Message(TOPIC, json.dumps({"payment": payment_id, "member": member}).encode())
    message.keys = payment_id
    return message


def payment_id_of(message: MessageExt) -> str | None:
    """The business key: the sender made it, and it means the same in every resend."""
    return message.keys


def issue_card(message: MessageExt, cursor: sqlite3.Cursor) -> None:
    """The work; its row and the noted key are committed together, or not at all."""
    notice = json.loads(bytes(message.body))
    cursor.execute(
        "INSERT INTO cards (member, payment_id) VALUES (?, ?)",
        (notice["member"], notice["payment"]),
    )


def card_issuer(name_server: str, database: str) -> PushConsumer:
    """A consumer that issues one card for each payment."""
    runtime = system_runtime()
    with sqlite3.connect(database) as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS cards "
            "(number INTEGER PRIMARY KEY, member TEXT NOT NULL, payment_id TEXT NOT NULL)"
        )
    connection.close()
    guard = SqlGuard(lambda: sqlite3.connect(database), GROUP, SqlDialect.SQLITE)
    guard.prepare()
    consumer = PushConsumer(
        runtime,
        ClientConfig(namesrv_addresses=(name_server,)),
        GROUP,
        consumer=ConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
    )
    consumer.subscribe(TOPIC, "*", once_per_key(runtime, guard, payment_id_of, issue_card))
    return consumer


async def main(name_server: str, database: str, enough: Awaitable[object]) -> None:
    """Pay three times, send each payment twice, and issue cards until it is `enough`."""
    issuer = card_issuer(name_server, database)
    payments = Producer(
        system_runtime(), ClientConfig(namesrv_addresses=(name_server,)), "payment-system"
    )
    await payments.start()
    for number in range(3):
        for _ in range(2):  # Two messages of one payment: each has a UNIQ_KEY of its own.
            await payments.send(payment_notice(f"payment-{number}", f"member-{number}"))
    await issuer.start()
    await enough
    await issuer.stop()
    await payments.stop()


def cards_of(database: str) -> list[tuple[str, str]]:
    """Member and payment of each card, in order."""
    connection = sqlite3.connect(database)
    try:
        return connection.execute(
            "SELECT member, payment_id FROM cards ORDER BY payment_id, number"
        ).fetchall()
    finally:
        connection.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], asyncio.sleep(20)))
    sys.stdout.writelines(f"{card}\n" for card in cards_of(sys.argv[2]))
