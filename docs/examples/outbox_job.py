"""An order and the message that announces it: both, or neither, whoever is killed.

The shop writes the order and its message in one transaction. A job sends what the outbox holds, as
often as its schedule says. docs/outbox.md has what that promises.

    tidemark engine --store var/store                        # a broker
    tidemark scheduler run --port 8080                       # a centre
    OUTBOX_NAME_SERVER=127.0.0.1:9876 OUTBOX_DATABASE=shop.db \\
      tidemark executor --admin http://127.0.0.1:8080/xxl-job-admin --app shop --module outbox_job
    tidemark jobs add --group shop title='send the outbox' handler=send-outbox \\
      schedule_kind=FIX_DELAY schedule_text=1 blocking=DISCARD_LATER route=FAILOVER

    python docs/examples/outbox_job.py shop.db 3             # three orders
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys

from engine.client import ClientConfig, Producer
from engine.client.outbox import OutboxRun, OutboxTable, send_outbox
from engine.client.sql import SqlDialect
from engine.protocol.message import Message
from engine.runtime import system_runtime
from pipelines.scheduler.executor import JobContext, handler

TOPIC, GROUP = "orders", "shop"


def outbox_of(database: str) -> OutboxTable:
    """The outbox beside the orders."""
    table = OutboxTable(system_runtime(), lambda: sqlite3.connect(database), SqlDialect.SQLITE)
    table.prepare()
    return table


def take_order(database: str, table: OutboxTable, customer: str) -> int:
    """The business: its own row and the message's, in its own transaction."""
    connection = sqlite3.connect(database)
    try:
        cursor = connection.cursor()
        cursor.execute(
            "CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY AUTOINCREMENT, "
            "customer TEXT NOT NULL)"
        )
        cursor.execute("INSERT INTO orders (customer) VALUES (?)", (customer,))
        number = int(cursor.lastrowid or 0)
        message = Message(TOPIC, json.dumps({"order": number, "customer": customer}).encode())
        message.keys = customer  # Orders of one customer arrive in their order.
        table.write(cursor, message)
        connection.commit()
    finally:
        connection.close()
    return number


async def send(name_server: str, database: str) -> OutboxRun:
    """Send what the outbox holds."""
    runtime = system_runtime()
    producer = Producer(runtime, ClientConfig(namesrv_addresses=(name_server,)), GROUP)
    await producer.start()
    try:
        return await send_outbox(runtime, outbox_of(database), producer)
    finally:
        await producer.stop()


@handler("send-outbox")
def send_outbox_job(context: JobContext) -> None:
    """One run of the job. It fails while there are rows that no broker takes, so that its alarm has
    somebody look at them."""
    run = asyncio.run(send(os.environ["OUTBOX_NAME_SERVER"], os.environ["OUTBOX_DATABASE"]))
    for row in run.poison:
        context.log(f"row {row.row_id}, {row.topic}, key {row.business_key}: {row.error}")
    if run.poison:
        context.handle_fail(str(run))
    else:
        context.handle_success(str(run))


if __name__ == "__main__":
    outbox = outbox_of(sys.argv[1])
    for each in range(int(sys.argv[2])):
        take_order(sys.argv[1], outbox, f"customer-{each % 2}")
