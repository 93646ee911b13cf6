"""Pulls: PULL_MESSAGE and LITE_PULL_MESSAGE, with long polling.

Place in the walk: the store finds records, and a pull that found none is parked until dispatch
tells of a message. What the reader had pulled before decides whether this is a redelivery.

Invariant: a pull is answered exactly once: now, when a wanted message arrives, at its deadline, or
not at all because its connection ended; a woken pull is never parked again.
Absent on purpose: which messages it wants (pull_filter) and reading from a slave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from engine.broker.long_poll import HeldPull
from engine.broker.membership import Membership
from engine.broker.new_lives import place_at_beginning
from engine.broker.parts import BrokerParts, client_id_of
from engine.broker.pull_filter import PullFilter, pull_filter
from engine.broker.remembered_offsets import (
    Client,
    Store,
    goes_back_to,
    note_answer,
    note_pull,
    pull_store,
)
from engine.broker.reported_offsets import tell_commit
from engine.broker.state.cold_reads import FAR_BEHIND_BYTES
from engine.broker.state.group_configs import TOOLS_GROUP
from engine.broker.state.groups import ConsumerGroup
from engine.broker.state.readers import QueueKey
from engine.foundation.errors import RequestRefused
from engine.foundation.limits import FILTER_COST_MAX, PULL_MESSAGES_MAX, PULL_SUSPEND_MS_MAX
from engine.foundation.units import MIB, Buffer
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import PullMessageRequestHeader, PullMessageResponseHeader
from engine.protocol.message_record import queue_offsets
from engine.protocol.names import PERM_READ, PullSysFlag, check_no_own_dead_letters
from engine.remoting import Handler, Peer
from engine.remoting.dispatcher import HandlerResult
from engine.store import GetResult, GetStatus

ANSWER_BYTES_MAX = 4 * MIB
COMMIT_OFFSET = int(PullSysFlag.COMMIT_OFFSET)  # Plain numbers, as PERM_READ is.
SUSPEND = int(PullSysFlag.SUSPEND)


@dataclass(slots=True)
class Pull:
    """A pull that passed every check."""

    peer: Peer
    request: RemotingCommand
    header: PullMessageRequestHeader
    key: QueueKey
    reader: str | None
    """Client id, or the address of a client that has sent no heartbeat."""
    shared: bool
    """Do the group's members share the queues (CLUSTERING)?"""
    client: Client
    """Who names the offset, and where it has it from."""
    life: int
    """The life of the topic in which it came."""
    filter: PullFilter
    topic_sys_flag: int
    group_sys_flag: int
    gate_changes: int
    """What the gate had seen of other accounts when it let this pass."""


class PullHandlers:
    """Answers pulls; parks those that find nothing."""

    def __init__(self, parts: BrokerParts, membership: Membership) -> None:
        self._parts = parts
        self._membership = membership
        self._far_bytes = min(FAR_BEHIND_BYTES, parts.config.store.resident_bytes)
        self._spent = 0
        """What filters have cost in this pass of the loop."""
        self._in_turn = asyncio.Lock()

    def handlers(self) -> dict[int, Handler]:
        """Request code → handler."""
        return {
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.LITE_PULL_MESSAGE: self.pull,
        }

    def pull(self, peer: Peer, request: RemotingCommand) -> HandlerResult:
        """PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): at once, unless the filters of others have
        cost enough in this pass of the loop.
        """
        if self._spent >= FILTER_COST_MAX:
            return self._pull_in_turn(peer, request)
        return self._pull(peer, request)

    async def _pull_in_turn(self, peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
        async with self._in_turn:
            await asyncio.sleep(0)
            return self._pull(peer, request)

    def _spend(self, cost: int) -> None:
        if cost and not self._spent:
            asyncio.get_running_loop().call_soon(self._forget_spent)
        self._spent += cost

    def _forget_spent(self) -> None:
        self._spent = 0

    def _pull(self, peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
        header = PullMessageRequestHeader.decode(request.fields)
        pull = self._checked(peer, request, header)
        back_to = goes_back_to(
            self._parts, pull.key, header.queue_offset, pull.client, shared=pull.shared
        )
        self._note_reader(pull, is_sent_back=back_to is not None)
        if back_to is not None:
            return self._sent_back(pull, back_to)
        note_pull(self._parts, pull.key, header.queue_offset, pull.client)
        self._commit(pull)
        reset_offset = self._parts.offsets.take_reset(*pull.key)
        if reset_offset is not None:
            return self._moved_by_reset(pull, reset_offset)
        if header.max_msg_nums == 0:  # A consumer that holds too much looks whether it stays.
            return self._nothing(pull, "no message was asked for")
        found = self._get(pull)
        tested = max(0, found.next_begin_offset - header.queue_offset) if pull.filter.tests else 0
        self._spend(pull.filter.made_cost + pull.filter.cost * tested)
        if _code_of(found, header.queue_offset) == ResponseCode.PULL_NOT_FOUND and self._park(pull):
            return None
        return self._response(pull, found)

    def _checked(
        self, peer: Peer, request: RemotingCommand, header: PullMessageRequestHeader
    ) -> Pull:
        """Permissions, queue and subscription, in RocketMQ's order. Raises RequestRefused."""
        parts, group, topic = self._parts, header.consumer_group, header.topic
        if not parts.config.broker_permission & PERM_READ:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{parts.config.host}] pulling message is forbidden: its "
                f"brokerPermission {parts.config.broker_permission} has no read bit",
            )
        check_no_own_dead_letters(group, topic)
        group_config = parts.group_configs.find(group)
        if group_config is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group}] does not exist; create it, or let the broker do so "
                "(autoCreateSubscriptionGroup)",
            )
        if not group_config.consume_enable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}"
            )
        config = parts.topics.require(topic)
        if not config.perm & PERM_READ:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic}] pulling message is forbidden: its perm {config.perm} has no "
                "read bit",
            )
        if not 0 <= header.queue_id < config.read_queue_nums:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queue_nums}] consumer:[{peer.address}]",
            )
        members = parts.groups.of(group)
        if (
            members is not None
            and members.broadcasting
            and not group_config.consume_broadcast_enable
        ):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group}] can not consume by broadcast way "
                "(consumeBroadcastEnable is false)",
            )
        return Pull(
            peer=peer,
            request=request,
            header=header,
            key=(group, topic, header.queue_id),
            reader=client_id_of(peer),
            shared=group != TOOLS_GROUP and (members is None or not members.broadcasting),
            client=Client(client_id_of(peer), peer.address, _store_of(request, header, members)),
            life=parts.lives.number(topic),
            filter=pull_filter(parts, header),
            topic_sys_flag=config.topic_sys_flag,
            group_sys_flag=group_config.group_sys_flag,
            gate_changes=parts.gate.changes,
        )

    def _note_reader(self, pull: Pull, *, is_sent_back: bool) -> None:
        if not pull.shared:
            return
        is_new, previous = self._parts.readers.arrived(
            pull.key, pull.reader, now_ms=self._parts.now_ms(), is_sent_back=is_sent_back
        )
        if is_new and pull.reader is not None:
            self._membership.reader_changed(pull.key, pull.reader, previous)

    def _commit(self, pull: Pull) -> None:
        """The piggyback: a pull that arrives may carry the offset to store (row A5)."""
        if pull.header.sys_flag & COMMIT_OFFSET and pull.header.commit_offset >= 0:
            tell_commit(
                self._parts,
                pull.peer,
                pull.key,
                pull.header.commit_offset,
                path="PULL_PIGGYBACK",
                trigger="UNKNOWN",
                pulled_from=pull.header.queue_offset,
            )

    def _get(self, pull: Pull) -> GetResult:
        header = pull.header
        return self._parts.store.get(
            header.topic,
            header.queue_id,
            header.queue_offset,
            max_count=max(1, min(header.max_msg_nums, PULL_MESSAGES_MAX)),
            max_bytes=min(header.max_msg_bytes or ANSWER_BYTES_MAX, ANSWER_BYTES_MAX),
            wanted=pull.filter.wanted,
            matches=pull.filter.matches,
            max_tests=pull.filter.tests_max,
        )

    def _park(self, pull: Pull) -> bool:
        """Hold the pull, if it may wait and there is room."""
        header, parts = pull.header, self._parts
        if not header.sys_flag & SUSPEND or header.suspend_timeout_ms <= 0:
            return False
        wait_ms = min(header.suspend_timeout_ms, PULL_SUSPEND_MS_MAX)
        if not parts.config.long_polling_enable:
            wait_ms = parts.config.short_polling_time_ms
        is_held = parts.holds.hold(
            HeldPull(
                group=header.consumer_group,
                topic=header.topic,
                queue_id=header.queue_id,
                queue_offset=header.queue_offset,
                wanted=pull.filter.wanted,
                matches=pull.filter.matches,
                deadline_ms=parts.steady_ms() + wait_ms,
                gone=lambda: pull.peer.closed,
                resume=lambda: self._resume(pull),
                filter_bytes=pull.filter.weight_bytes,
                filter_cost=pull.filter.cost,
            )
        )
        if is_held:  # What it says is as long as its client likes, and is understood by now.
            header.subscription = header.expression_type = None
            header.broker_name = header.proxy_forward_client_id = None
            pull.peer.let_go(pull.request)
        return is_held

    def _resume(self, pull: Pull) -> None:
        """Answer a pull that was held, from what the store has now; with nothing when the accounts
        have changed since it passed the gate, or its topic or group is gone: it asks again, and is
        judged again.
        """
        if pull.peer.closed:
            return
        parts, (group, topic, _) = self._parts, pull.key
        if pull.gate_changes != parts.gate.changes:
            pull.peer.answer(pull.request, self._nothing(pull, "the accounts have changed"))
            return
        if pull.life != parts.lives.number(topic) or not parts.group_configs.known(group):
            pull.peer.answer(pull.request, self._nothing(pull, "topic or group was deleted"))
            return
        reset_offset = self._parts.offsets.take_reset(*pull.key)
        if reset_offset is not None:
            response = self._moved_by_reset(pull, reset_offset)
        else:
            response = self._response(pull, self._get(pull))
        pull.peer.answer(pull.request, response)

    def _nothing(self, pull: Pull, reason: str) -> RemotingCommand:
        remark = f"{reason}; ask again"
        return self._without_messages(
            pull, ResponseCode.PULL_NOT_FOUND, remark, pull.header.queue_offset
        )

    def _sent_back(self, pull: Pull, offset: int) -> RemotingCommand:
        """The client remembers what is gone, and has to begin at `offset`; so has any other of its
        group that asks, whatever its start policy is.
        """
        if pull.shared and self._parts.offsets.told(*pull.key) is None:
            place_at_beginning(self._parts, pull.key)
        return self._moved_by_reset(pull, offset)

    def _moved_by_reset(self, pull: Pull, offset: int) -> RemotingCommand:
        return self._without_messages(pull, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", offset)

    def _without_messages(
        self, pull: Pull, code: int, remark: str, next_begin_offset: int
    ) -> RemotingCommand:
        """An answer that was not read from the queue."""
        store, queue = self._parts.store, (pull.header.topic, pull.header.queue_id)
        fields = _fields(
            pull, next_begin_offset, store.min_offset(*queue), store.max_offset(*queue)
        )
        return pull.request.respond(code, remark, fields)

    def _response(self, pull: Pull, found: GetResult) -> RemotingCommand:
        code = _code_of(found, pull.header.queue_offset)
        body: bytes | memoryview = b""
        pieces: Sequence[memoryview] = ()
        if found.status is GetStatus.FOUND:
            body, pieces = found.body_and_pieces()
        if code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
            self._note_progress(pull, found, (body, *pieces))
        if found.count:
            group, topic, _ = pull.key
            self._parts.traffic.got(group, topic, found.count, found.size_bytes)
            behind_bytes = found.behind_bytes
            if behind_bytes is not None and behind_bytes > self._far_bytes:
                self._note_cold(group, topic, found, behind_bytes)
        else:
            self._parts.traffic.missed()
        if code == ResponseCode.PULL_OFFSET_MOVED:
            note_answer(self._parts, pull.key, found.next_begin_offset, pull.peer.address)
        fields = _fields(pull, found.next_begin_offset, found.min_offset, found.max_offset)
        response = pull.request.respond(code, found.status.value, fields, body)
        response.pieces = pieces
        return response

    def _note_cold(self, group: str, topic: str, found: GetResult, behind_bytes: int) -> None:
        config = self._parts.config.store
        self._parts.cold_reads.add(
            group,
            topic,
            messages=found.count,
            size_bytes=found.size_bytes,
            behind_bytes=behind_bytes,
            resident_bytes=config.resident_bytes,
            messages_a_pull_max=config.max_transfer_count_in_disk,
        )

    def _note_progress(self, pull: Pull, found: GetResult, bodies: Sequence[Buffer]) -> None:
        """Move the group's pulled mark, and tell what the answer delivers again."""
        if not pull.shared:
            return
        parts = self._parts
        moved, again = parts.readers.answered(
            pull.key,
            pull.reader,
            from_offset=pull.header.queue_offset,
            next_offset=found.next_begin_offset,
            count_below=lambda offset: sum(
                one < offset for body in bodies for one in queue_offsets(body)
            ),
        )
        if again is not None:
            parts.observer.observe(again)
        if moved:
            group, topic, queue_id = pull.key
            parts.observer.pulled(group, topic, queue_id, found.next_begin_offset, pull.reader)
            parts.handed(pull.key, range(pull.header.queue_offset, found.next_begin_offset), bodies)


def _store_of(
    request: RemotingCommand, header: PullMessageRequestHeader, group: ConsumerGroup | None
) -> Store:
    is_lite = request.code == RequestCode.LITE_PULL_MESSAGE
    return pull_store(group, is_lite=is_lite, suspends=bool(header.sys_flag & SUSPEND))


def _fields(pull: Pull, next_begin_offset: int, min_offset: int, max_offset: int) -> dict[str, str]:
    return PullMessageResponseHeader(
        suggest_which_broker_id=0,
        next_begin_offset=next_begin_offset,
        min_offset=min_offset,
        max_offset=max_offset,
        topic_sys_flag=pull.topic_sys_flag,
        group_sys_flag=pull.group_sys_flag,
    ).encode()


def _code_of(found: GetResult, asked_offset: int) -> ResponseCode:
    """RocketMQ's code for a status."""
    match found.status:
        case GetStatus.FOUND:
            return ResponseCode.SUCCESS
        case GetStatus.NO_MATCHED_MESSAGE | GetStatus.MESSAGE_WAS_REMOVING:
            return ResponseCode.PULL_RETRY_IMMEDIATELY
        case GetStatus.OFFSET_FOUND_NULL | GetStatus.OFFSET_OVERFLOW_ONE:
            return ResponseCode.PULL_NOT_FOUND
        case GetStatus.NO_MESSAGE_IN_QUEUE | GetStatus.NO_MATCHED_LOGIC_QUEUE:
            if asked_offset == 0:
                return ResponseCode.PULL_NOT_FOUND
            return ResponseCode.PULL_OFFSET_MOVED
        case GetStatus.OFFSET_OVERFLOW_BADLY | GetStatus.OFFSET_TOO_SMALL:
            return ResponseCode.PULL_OFFSET_MOVED
