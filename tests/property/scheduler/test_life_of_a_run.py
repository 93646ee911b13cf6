"""One run between centres that sleep and die, a network that loses, executors that restart.

The model plays one row of the database, two centres, two executors and what is under way between
them, in any order of events; centres move the row as `run_life` allows. Walks are drawn from those
steps that can happen: Hypothesis' own choice of rules seldom makes the eight steps in a row by
which a broken rule is found.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from pipelines.scheduler.run_life import (
    CALL_TIMEOUT_MS,
    CLAIM_MS,
    ENDED,
    MOVES,
    UNKNOWN_MS_MAX,
    RunEvent,
    RunState,
    Standing,
    may_send,
    moved,
)

WALKS = 15
STEPS = 24
Step = tuple[int, str, Callable[[], None]]
"""How likely it is, its name, what it does."""


@dataclass
class Centre:
    """What a centre process remembers of the run; a kill empties it."""

    token: int | None = None
    claim_until_ms: int | None = None
    """Of the claim under which it wrote SENT, until it has sent."""
    called_ms: int | None = None
    written_ms: int = 0


@dataclass
class Executor:
    """What an executor has: a queue in memory, and logs on its disk; one of ours a book besides, of
    the runs that it took."""

    is_ours: bool = False
    queued: int = 0
    has_log: bool = False
    is_gone: bool = False
    has_taken: bool = False
    denied_ms: int = -1
    """It said of the run, as it was written then, that it had not taken it."""
    reports_failure: bool = False
    """It took the run, and ended before it began."""


@dataclass
class Request:
    address: int
    centre: int
    sent_ms: int
    written_ms: int
    """When the run was written as SENT: it says so."""
    answer: RunEvent | None = None


class World:
    """One run, and everybody who has to do with it."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.now = 0
        self.run = Standing(RunState.CLAIMED, 1, CLAIM_MS, 0)
        self.address = self.written_ms = 0
        self.centres = [Centre(token=1), Centre()]
        self.executors = [Executor(), Executor(is_ours=True)]
        self.wire: list[Request] = []
        self.begun = self.accepted = self.voided = 0

    def steps(self) -> Iterator[Step]:
        """What can happen next."""
        for by_ms in (1, CALL_TIMEOUT_MS, CLAIM_MS, UNKNOWN_MS_MAX):
            yield 1, f"{by_ms} ms pass", partial(self.pass_time, by_ms)
        for who, centre in enumerate(self.centres):
            yield from self._steps_of(who, centre)
        for request in self.wire:
            if request.answer is None:
                yield 4, "a request arrives", partial(self.arrive, request)
            else:
                yield 4, "an answer arrives", partial(self.hear, request)
            yield 1, "the network loses it", partial(self.wire.remove, request)
        for at, executor in enumerate(self.executors):
            if executor.queued:
                yield 2, f"executor {at} begins", partial(self.begin, executor)
            if executor.has_log:
                yield 1, "success is reported", lambda: self.note(RunEvent.SUCCEED)
            if executor.reports_failure:
                yield 1, "that it never began is reported", lambda: self.note(RunEvent.FAIL)
            if executor.is_ours and executor.has_log:
                yield 1, "its log is removed", partial(setattr, executor, "has_log", False)
            if not executor.is_gone:
                yield 1, f"executor {at} restarts", partial(self.restart, at)
        if self.run.state in MOVES[RunEvent.MISS]:
            yield 3, "its executor is asked", self.ask
        if self.run.state is RunState.UNKNOWN:
            yield 1, "nobody can say", lambda: self.note(RunEvent.GIVE_UP)
        if self.run.state is RunState.SENT:
            yield 2, "its centre seems gone", lambda: self.note(RunEvent.LOSE_SIGHT)
        if self.chance.random() < 0.1:
            yield 2, "its executor leaves", lambda: self.leave(self.address)
            yield 1, "its job is paused", lambda: self.note(RunEvent.CANCEL)

    def _steps_of(self, who: int, centre: Centre) -> Iterator[Step]:
        if self.run.state in MOVES[RunEvent.CLAIM]:
            yield 2, f"centre {who} claims", lambda: self.claim(centre)
        if centre.token is not None and self.run.state is RunState.CLAIMED:
            yield 4, f"centre {who} writes that it sends", lambda: self.write(centre)
        if centre.claim_until_ms is not None:
            yield 4, f"centre {who} sends", lambda: self.send(who, centre)
        if centre.called_ms is not None and self.now >= centre.called_ms + CALL_TIMEOUT_MS:
            yield 4, f"centre {who} waits no longer", lambda: self.give_up(centre)
        if centre.token is not None:
            yield 1, f"centre {who} is killed", lambda: self.kill(who)

    def move(self, event: RunEvent, token: int | None = None) -> bool:
        """One transaction: what the store does with a row."""
        state = moved(self.run, event, now_ms=self.now, token=token)
        if state is None:
            return False
        assert self.run.state not in ENDED
        self.run = replace(self.run, state=state)
        return True

    def note(self, event: RunEvent) -> None:
        self.move(event)

    def pass_time(self, by_ms: int) -> None:
        self.now += by_ms
        # A centre that is stopped just before it writes to the socket sends when it goes on: one of
        # ours refuses what it has taken, whenever that comes (docs/adr/0043).
        self.wire = [
            one
            for one in self.wire
            if one.sent_ms + CALL_TIMEOUT_MS >= self.now or self._comes_late(one)
        ]

    def _comes_late(self, request: Request) -> bool:
        executor = self.executors[request.address]
        return executor.is_ours and request.answer is None

    def claim(self, centre: Centre) -> None:
        if self.move(RunEvent.CLAIM):
            token = self.run.token + 1
            self.run = replace(self.run, token=token, claim_until_ms=self.now + CLAIM_MS)
            centre.token, centre.claim_until_ms, centre.called_ms = token, None, None

    def write(self, centre: Centre) -> None:
        if self.move(RunEvent.SEND, centre.token):
            until = self.now + CLAIM_MS
            self.run = replace(self.run, sendings=self.run.sendings + 1, claim_until_ms=until)
            alive = [at for at in (0, 1) if not self.executors[at].is_gone]
            self.address, centre.claim_until_ms = self.chance.choice(alive or [0]), until
            centre.written_ms = self.written_ms = self.now

    def send(self, who: int, centre: Centre) -> None:
        if may_send(centre.claim_until_ms or 0, self.now):
            self.wire.append(Request(self.address, who, self.now, centre.written_ms))
            centre.called_ms = self.now
        centre.claim_until_ms = None

    def arrive(self, request: Request) -> None:
        executor = self.executors[request.address]
        request.answer = RunEvent.REFUSE
        if executor.is_ours and executor.has_taken:
            request.answer = RunEvent.ACCEPT
        elif request.written_ms <= executor.denied_ms:
            request.answer = RunEvent.REFUSE
        elif not executor.is_gone and self.chance.random() < 0.9:
            executor.queued += 1
            executor.has_taken = True
            self.accepted += 1
            request.answer = RunEvent.ACCEPT

    def hear(self, request: Request) -> None:
        self.wire.remove(request)
        centre = self.centres[request.centre]
        if centre.called_ms == request.sent_ms and request.answer is not None:
            self.move(request.answer, centre.token)
            centre.called_ms = None

    def give_up(self, centre: Centre) -> None:
        self.move(RunEvent.LOSE_SIGHT, centre.token)
        centre.called_ms = None

    def kill(self, who: int) -> None:
        self.centres[who] = Centre()

    def ask(self) -> None:
        executor = self.executors[self.address]
        if self.run.sendings and not executor.is_gone:
            has_it = executor.queued or executor.has_log
            if executor.is_ours:
                has_it = executor.has_taken
                executor.denied_ms = executor.denied_ms if has_it else self.written_ms
            self.move(RunEvent.SEE if has_it else RunEvent.MISS)

    def begin(self, executor: Executor) -> None:
        executor.queued, executor.has_log = executor.queued - 1, True
        self.begun += 1

    def restart(self, at: int) -> None:
        executor = self.executors[at]
        self.voided += executor.queued
        executor.reports_failure |= executor.is_ours and executor.queued > 0
        executor.queued = 0

    def leave(self, at: int) -> None:
        self.restart(at)
        self.executors[at].is_gone = True
        if self.run.sendings:
            self.move(RunEvent.BEREAVE)

    def check(self) -> None:
        """The law."""
        assert self.begun <= 1, "it began twice"
        assert self.accepted - self.voided <= 1, "two have it, but for what a restart emptied"

    def heal(self) -> None:
        """Let one centre and the executors that are left do their work: the run ends."""
        for _ in range(30):
            for request in list(self.wire):
                self.hear(request) if request.answer else self.arrive(request)
            self.pass_time(CLAIM_MS)
            self.note(RunEvent.LOSE_SIGHT)
            self.ask()
            if self.executors[self.address].is_gone and self.run.sendings:
                self.note(RunEvent.BEREAVE)
            centre = self.centres[0]
            self.claim(centre)
            if all(executor.is_gone for executor in self.executors):
                self.move(RunEvent.REFUSE, centre.token)
            self.write(centre)
            self.send(0, centre)
            for executor in self.executors:
                if executor.queued:
                    self.begin(executor)
                if executor.has_log:
                    self.note(RunEvent.SUCCEED)
                if executor.reports_failure or (executor.has_taken and executor.is_ours):
                    self.note(RunEvent.FAIL)
            self.check()
            if self.run.state in ENDED and not self.wire:
                return
        raise AssertionError(f"stuck in {self.run}")


@given(st.integers(0, 2**32))
def test_a_run_begins_at_most_once_and_ends(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(WALKS):
        world, walked = World(chance), []
        try:
            for _ in range(STEPS):
                steps = list(world.steps())
                _, name, step = chance.choices(steps, [weight for weight, _, _ in steps])[0]
                walked.append(name)
                step()
                world.check()
            world.heal()
        except AssertionError as error:
            raise AssertionError(f"{error}: {'; '.join(walked)}") from error


def test_a_run_is_given_up_when_nobody_could_say_for_long_and_not_before() -> None:
    run = Standing(RunState.UNKNOWN, 1, CLAIM_MS, 1)
    over_ms = CLAIM_MS + UNKNOWN_MS_MAX
    assert moved(run, RunEvent.GIVE_UP, now_ms=over_ms - 1) is None
    assert moved(run, RunEvent.GIVE_UP, now_ms=over_ms) is RunState.LOST
    for state in set(RunState) - {RunState.UNKNOWN}:
        other = replace(run, state=state)
        assert moved(other, RunEvent.GIVE_UP, now_ms=2 * over_ms) is None


def test_a_state_that_nobody_knows_is_lost_and_stays_so() -> None:
    assert RunState("PAUSED BY HAND") is RunState.LOST


def test_nothing_moves_what_has_ended() -> None:
    for state in ENDED:
        run = Standing(state, 1, 0, 1)
        assert all(moved(run, event, now_ms=10**9, token=1) is None for event in RunEvent)


def test_a_result_of_what_was_never_sent_is_nobodys() -> None:
    run = Standing(RunState.CLAIMED, 1, CLAIM_MS, 0)
    assert moved(run, RunEvent.SUCCEED, now_ms=0) is None
    assert moved(replace(run, sendings=1), RunEvent.SUCCEED, now_ms=0) is RunState.DONE


def test_a_centre_that_slept_through_its_claim_moves_nothing() -> None:
    run = Standing(RunState.CLAIMED, 2, CLAIM_MS, 0)
    for event in MOVES:
        if event in {RunEvent.SEND, RunEvent.ACCEPT, RunEvent.REFUSE}:
            assert moved(run, event, now_ms=0, token=1) is None
