"""Periodically asks producers for the outcome of their open transactions.

Place in the walk: beside it. Each round looks at every open transaction; one whose time-out has
passed is put again at the tail of the half queue, with one more question counted, and a live
producer of its group is asked about that copy. One whose producer has asked for time costs nothing
until many settled ones wait behind it. The answer is an END_TRANSACTION like any other (row D4).
`state.transactions.verdict` decides what becomes of each.

Invariant: a transaction that has ended is not asked about, whether or not its op message is
written. RocketMQ 5.5 reads op messages only, and asks, and then delivers, again (measured there:
one commit, seven deliveries).
Absent on purpose: waiting for answers. A producer that stays silent is asked in the next round, one
that is away for `transactionCheckMax` rounds is given up.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from engine.broker.groups.producer_groups import ProducerGroups
from engine.broker.identity import BrokerNode
from engine.broker.transactions.half_queue import HalfQueue
from engine.broker.transactions.half_records import properties_of
from engine.broker.transactions.stored_messages import demand_for
from engine.broker.transactions.transactions import CheckRules, HalfMessage, Verdict, verdict
from engine.delay.waiting_messages import real_place
from engine.foundation.errors import LocalProtocolError, StorageError
from engine.foundation.units import MINUTE_MS, SECOND_MS
from engine.protocol.codes import RequestCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import CheckTransactionStateRequestHeader
from engine.protocol.message import MessageExt
from engine.protocol.message_record import encode_record
from engine.protocol.names import HALF_TOPIC
from engine.protocol.properties import PROPERTY_PRODUCER_GROUP
from engine.remoting import Peer
from engine.remoting.accounts import Demand, Permission
from engine.remoting.gate import Gate
from engine.runtime.clock import Clock

ROUND_MS_MAX = MINUTE_MS
"""A round that takes longer ends; the next one goes on (RocketMQ's figure)."""
TURN_COUNT = 64
"""Transactions looked at before the event loop gets its turn."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class TransactionChecks:
    """The check rounds of one broker."""

    clock: Clock
    gate: Gate
    node: BrokerNode
    producers: ProducerGroups
    half_queue: HalfQueue
    _asked_count: int = field(default=0, init=False)

    async def run(self) -> None:
        """A round each transactionCheckInterval, until cancelled."""
        while True:
            await asyncio.sleep(self.node.config.transaction_check_interval_ms / SECOND_MS)
            try:
                await self.check_round()
            except StorageError as error:
                _log.warning("open transactions wait for the next check round: %s", error)

    async def check_round(self) -> None:
        """Look at every open transaction once. Raises StorageError."""
        began_ms, began_steady_ms = self.clock.now_ms(), self.clock.steady_ms()
        transactions = self.half_queue.transactions
        renews = transactions.is_sparse
        for number, half in enumerate(transactions.open_halves()):
            if number % TURN_COUNT == TURN_COUNT - 1:
                await asyncio.sleep(0)
            now_ms = self.clock.now_ms()
            if self.clock.steady_ms() - began_steady_ms > ROUND_MS_MAX:
                break
            if not self.node.is_master:
                break
            if transactions.find(half.first_offset) is half:  # Others end while we sleep.
                self._apply(half, now_ms=now_ms, round_began_ms=began_ms, renews=renews)

    def _apply(self, half: HalfMessage, *, now_ms: int, round_began_ms: int, renews: bool) -> None:
        config = self.node.config  # Read each time: it may change while the broker runs.
        rules = CheckRules(
            config.transaction_timeout_ms,
            config.transaction_check_max,
            config.store.file_reserved_time_ms,
            renews,
        )
        decided = verdict(half, now_ms=now_ms, round_began_ms=round_began_ms, rules=rules)
        if decided is Verdict.WAIT:
            return
        message = self.half_queue.message_of(half)
        if message is not None and self.half_queue.was_deleted(message):
            self.half_queue.roll_back_deleted(message)
            return
        if message is None or decided is Verdict.DISCARD:
            self._discard(half, message, f"asked {half.check_times} times, or too old")
            return
        times = half.check_times + (decided is Verdict.CHECK)
        try:
            newest = self.half_queue.put_again(message, check_times=times)
        except LocalProtocolError as error:  # A record of another broker, full to the brim.
            self._discard(half, message, str(error))
            return
        if decided is Verdict.CHECK:
            self._ask(newest)

    def _discard(self, half: HalfMessage, message: MessageExt | None, reason: str) -> None:
        name = f"at {half.physical_offset}, gone" if message is None else message.message_id
        _log.warning("the transaction of half message %s is rolled back: %s", name, reason)
        self.half_queue.discard(half, message)

    def _ask(self, half: MessageExt) -> None:
        """Push the question to a producer of the group; without one, the round has counted.

        The question holds the message, and anybody can name the group: so only a producer
        whose account may write to the message's topic is asked.
        """
        group = half.properties.get(PROPERTY_PRODUCER_GROUP, "")
        demand = demand_for(half, Permission.PUB)
        peer = self._live_producer(group, demand)
        if peer is None:
            _log.warning(
                "no producer of group %r that may write to %s can be asked about half message %s",
                *(group, demand.name, half.message_id),
            )
            return
        peer.send(check_request(half, self.node.config.broker_name))

    def _live_producer(self, group: str, demand: Demand) -> Peer | None:
        """One after the other, so that a producer that never answers does not keep them all."""
        gate, producers = self.gate, self.producers
        peers = [
            member.channel.peer
            for member in producers.members(group)
            if not member.channel.peer.closed and gate.may(member.channel.account, demand)
        ]
        if not peers:
            return None
        self._asked_count += 1
        return peers[self._asked_count % len(peers)]


def check_request(half: MessageExt, broker_name: str) -> RemotingCommand:
    """CHECK_TRANSACTION_STATE (39), one-way: the half message under its real name is the body."""
    header = CheckTransactionStateRequestHeader(
        topic=HALF_TOPIC,  # As RocketMQ 5.5 sends it; the body carries the real one.
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=half.physical_offset,
        msg_id=half.uniq_key,
        transaction_id=half.uniq_key,
        offset_msg_id=half.offset_message_id,
    )
    place = real_place(half)
    if place is not None:
        half.topic, half.queue_id = place
    half.properties = properties_of(half)
    request = RemotingCommand.request(
        RequestCode.CHECK_TRANSACTION_STATE,
        {**header.encode(), "bname": broker_name},
        bytes(encode_record(half)),
    )
    request.mark_oneway()
    return request
