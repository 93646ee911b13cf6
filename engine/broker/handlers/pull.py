"""Handles pull requests (PULL_MESSAGE and LITE_PULL_MESSAGE) with long polling.

Place in the walk: the store finds records, and a pull that found none is parked until dispatch
signals a message. What the reader had pulled before decides whether this is a redelivery.

Invariant: a pull is answered exactly once: now, when a wanted message arrives, at its deadline, or
not at all because its connection ended; a woken pull is never parked again.
Absent on purpose: which messages it wants (pull_filter).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from engine.broker.identity import BrokerNode
from engine.broker.pulling.long_poll import HeldPull, HeldPulls
from engine.broker.pulling.pull_answers import PullAnswers, code_of
from engine.broker.pulling.pull_checks import (
    COMMIT_OFFSET,
    SUSPEND,
    Pull,
    PullChecks,
    PullPositions,
)
from engine.foundation.limits import FILTER_COST_MAX, PULL_SUSPEND_MS_MAX
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import PullMessageRequestHeader
from engine.remoting import Handlers, Peer, serves
from engine.remoting.dispatcher import HandlerResult
from engine.runtime.clock import Clock


@dataclass(slots=True, kw_only=True, eq=False)
class PullHandlers(Handlers):
    """Answers pulls; parks those that find nothing."""

    node: BrokerNode
    clock: Clock
    checks: PullChecks
    positions: PullPositions
    answers: PullAnswers
    holds: HeldPulls
    _spent: int = field(default=0, init=False)
    """What filters have cost in this pass of the loop."""
    _in_turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    @serves(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
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
        pull = self.checks.checked(peer, request, header)
        elsewhere = self.answers.elsewhere(pull)
        if elsewhere is not None:
            return elsewhere
        if not self.node.is_master:
            header.sys_flag &= ~COMMIT_OFFSET  # Progress is the master's to note.
        elif (moved_to := self.positions.moved_to(pull)) is not None:
            return self.answers.moved(pull, moved_to)
        if header.max_msg_nums == 0:  # A consumer that holds too much looks whether it stays.
            return self.answers.nothing(pull, "no message was asked for")
        found = self.answers.read(pull)
        tested = max(0, found.next_begin_offset - header.queue_offset) if pull.filter.tests else 0
        self._spend(pull.filter.made_cost + pull.filter.cost * tested)
        if code_of(found, header.queue_offset) == ResponseCode.PULL_NOT_FOUND and self._park(pull):
            return None
        return self.answers.found(pull, found)

    def _park(self, pull: Pull) -> bool:
        """Hold the pull, if it may wait and there is room."""
        header = pull.header
        if not header.sys_flag & SUSPEND or header.suspend_timeout_ms <= 0:
            return False
        wait_ms = min(header.suspend_timeout_ms, PULL_SUSPEND_MS_MAX)
        if not self.node.config.long_polling_enable:
            wait_ms = self.node.config.short_polling_time_ms
        is_held = self.holds.hold(
            HeldPull(
                group=header.consumer_group,
                topic=header.topic,
                queue_id=header.queue_id,
                queue_offset=header.queue_offset,
                wanted=pull.filter.wanted,
                matches=pull.filter.matches,
                deadline_ms=self.clock.steady_ms() + wait_ms,
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
        void = self.checks.why_void(pull)
        if void is not None:
            response = self.answers.nothing(pull, void)
        elif (elsewhere := self.answers.elsewhere(pull)) is not None:
            response = elsewhere
        elif self.node.is_master and (moved_to := self.positions.reset_to(pull)) is not None:
            response = self.answers.moved(pull, moved_to)
        else:
            response = self.answers.found(pull, self.answers.read(pull))
        pull.peer.answer(pull.request, response)
