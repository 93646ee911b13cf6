"""Plays scenario files: commands to a group, and the trace that they must leave.

    python -m tests.unit.raft.scenario_files      # write the traces anew; read what git shows then

A block of a file is commands, a line of dashes, and the trace; a blank line ends it. A command that
begins with `quietly` leaves no trace. Nothing is left to chance: the time-out of an election is the
least one.

    group abc [learners=d]          pass 100  later 100   elect a
    put a [3]                       deliver [a>b] [b>a]   drop a>b
    save a     sync a               begin_sync a          end_sync a
    crash a [keep=2]                start a               lose_disk a
    cut a>b    isolate a   heal     sleep a               wake a
    transfer a b                    read a                members a voters=abc learners=d
    forget a                        install a             fail a
    tick a     state                settle                lease a
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from engine.raft.events import (
    Accepted,
    Committed,
    Cut,
    DiskFailed,
    Effect,
    Install,
    ReadReady,
    Refused,
    RoleChanged,
    SaveMark,
    SaveVote,
    Send,
    Tick,
    UnsafeToElect,
    WriteBytes,
)
from engine.raft.log_shape import Mark, Position
from engine.raft.members import Members
from engine.raft.messages import (
    Append,
    AppendReply,
    BeginAt,
    Message,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from tests.unit.raft.group import Group

FOLDER = Path(__file__).parent / "scenarios"
DASHES = "----"


class NoChance(random.Random):
    """The least of what may be chosen."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        del step
        return 0 if stop is None else start

    def randint(self, a: int, b: int) -> int:
        del a
        return b

    def random(self) -> float:
        return 1.0


def at(position: Position) -> str:
    return f"{position.term}/{position.index}"


def mark_in_words(mark: Mark) -> str:
    what = "term begins" if mark.members is None else members_in_words(mark.members)
    return f"mark {mark.term}/{mark.index} {what}"


def members_in_words(members: Members) -> str:
    learners = f" learners {','.join(members.learners)}" if members.learners else ""
    return f"voters {','.join(members.voters)}{learners}"


def message_in_words(message: Message) -> str:
    match message:
        case VoteRequest(term, last, is_pre, by_transfer):
            kind = "would you vote" if is_pre else "vote"
            return f"{kind} in {term}, log {at(last)}{', handed over' * by_transfer}"
        case VoteReply(term, is_pre, granted):
            return f"{'would' * is_pre}{'' if is_pre else 'does'}{'' if granted else ' not'} {term}"
        case Append(term, prev, end, commit, number, mark, _):
            what = mark_in_words(mark) if mark else f"bytes to {end}" * (end > prev.index)
            return f"append {term} after {at(prev)} {what or 'nothing'}, commit {commit} #{number}"
        case AppendReply(term, number, has, synced, rejected, hint):
            if rejected is not None and hint is not None:
                return f"rejects {at(rejected)}, try {at(hint)} ({term} #{number})"
            return f"has {has} synced {synced} ({term} #{number})"
        case BeginAt(term, base, _):
            return f"begin {term} at {at(base.position)}"
        case TimeoutNow(term):
            return f"lead after {term}"
        case _:
            return f"{message.node} is gone"


def effect_in_words(effect: Effect) -> str:
    match effect:
        case Send(to, message, after):
            return f"-> {to} {message_in_words(message)} (vote {after})"
        case SaveVote(number, term, vote):
            return f"save vote {number}: {vote or 'none'} in {term}"
        case WriteBytes(first, end):
            return f"write {first} to {end}"
        case SaveMark(mark):
            return f"save {mark_in_words(mark)}"
        case Cut(index, _):
            return f"cut at {index}"
        case Install(leader, base):
            return f"install files of {leader}, begin at {at(base.position)}"
        case Committed(position, offset):
            return f"committed {at(position)}, offset {offset}"
        case RoleChanged(role, term, leader):
            return f"{role.name} of {term}, leader {leader or 'unknown'}"
        case Accepted(position):
            return f"accepted {at(position)}"
        case Refused(reason, detail):
            return f"refused {reason.name} {detail}".rstrip()
        case ReadReady(_, index):
            return f"read at {index}" if index is not None else "read elsewhere"
        case UnsafeToElect(gone):
            return f"UNSAFE_TO_ELECT without {','.join(gone)}"


class Scenario:
    """One file, as it is played."""

    def __init__(self) -> None:
        self.group: Group | None = None
        self.trace: list[str] = []

    def note(self, node: str, effect: Effect) -> None:
        self.trace.append(f"{node}: {effect_in_words(effect)}")

    def play(self, command: str) -> None:
        word, *words = command.split()
        is_quiet = word == "quietly"
        if is_quiet:
            word, *words = words
        before = list(self.trace)
        if word == "group":
            self._begin(words)
        else:
            assert self.group is not None, "a scenario begins with a group"
            COMMANDS[word](self, self.group, words)
        if is_quiet:
            self.trace = before

    def _begin(self, words: list[str]) -> None:
        options = options_of(words[1:])
        self.group = Group(
            words[0],
            chance=NoChance(),
            learners=options.get("learners", ""),
            on_effect=self.note,
        )


def options_of(words: list[str]) -> dict[str, str]:
    found = {}
    for word in words:
        name, _, value = word.partition("=")
        found[name] = value
    return found


def deliver(scenario: Scenario, group: Group, words: list[str]) -> None:
    """Letters that are under way now, of these ways or of all; disks are not waited for."""
    del scenario
    for letter in list(group.letters):
        if not words or f"{letter.sender}>{letter.to}" in words:
            group.deliver_letter(letter)


def drop(scenario: Scenario, group: Group, words: list[str]) -> None:
    del scenario
    group.letters = [
        letter for letter in group.letters if f"{letter.sender}>{letter.to}" not in words
    ]


def crash(scenario: Scenario, group: Group, words: list[str]) -> None:
    del scenario
    group.crash(words[0], survivors=int(options_of(words[1:]).get("keep", "0")))


def members(scenario: Scenario, group: Group, words: list[str]) -> None:
    del scenario
    options = options_of(words[1:])
    group.change_members(
        words[0],
        Members(
            tuple(options["voters"].split(",")),
            tuple(filter(None, options.get("learners", "").split(","))),
        ),
    )


def put(scenario: Scenario, group: Group, words: list[str]) -> None:
    refusal = group.hosts[words[0]].state.refusal()
    if refusal is not None:
        scenario.trace.append(f"{words[0]}: refuses {refusal.name}")
    else:
        group.put(words[0], int(words[1]) if len(words) > 1 else 1)


def state(scenario: Scenario, group: Group, words: list[str]) -> None:
    for host in group.hosts.values():
        if words and host.node not in words:
            continue
        one = host.state
        scenario.trace.append(
            f"{host.node}: {one.role.name} of {one.term}, log {at(one.log.last)}, commit "
            f"{one.commit}, synced {one.synced}" + ("" if host.is_up else ", down")
        )
    scenario.trace.append(f"acknowledged: {group.acknowledged}")


def lease(scenario: Scenario, group: Group, words: list[str]) -> None:
    until = group.hosts[words[0]].state.lease_until_ms(group.now_ms)
    scenario.trace.append(f"{words[0]}: lease for {max(0, until - group.now_ms)} ms")


def later(scenario: Scenario, group: Group, words: list[str]) -> None:
    """Time passes that nobody notices yet."""
    del scenario
    group.now_ms += int(words[0])


def sleep(scenario: Scenario, group: Group, words: list[str]) -> None:
    del scenario
    group.hosts[words[0]].is_paused = True


def wake(scenario: Scenario, group: Group, words: list[str]) -> None:
    del scenario
    group.hosts[words[0]].is_paused = False


def cut(scenario: Scenario, group: Group, words: list[str]) -> None:
    del scenario
    for word in words:
        sender, _, to = word.partition(">")
        group.cut_way(sender, to)


Command = Callable[[Scenario, Group, list[str]], object]
COMMANDS: dict[str, Command] = {
    "begin_sync": lambda _, group, words: group.begin_sync(words[0]),
    "crash": crash,
    "cut": cut,
    "deliver": deliver,
    "deliver_all": lambda _, group, words: group.deliver_all(),
    "drop": drop,
    "elect": lambda _, group, words: group.elect(words[0]),
    "end_sync": lambda _, group, words: group.end_sync(words[0]),
    "fail": lambda _, group, words: group.happen(words[0], DiskFailed()),
    "forget": lambda _, group, words: group.forget_begin(words[0]),
    "heal": lambda _, group, words: group.heal(),
    "install": lambda _, group, words: group.install(words[0]),
    "isolate": lambda _, group, words: group.isolate(words[0]),
    "later": later,
    "lease": lease,
    "lose_disk": lambda _, group, words: group.lose_disk(words[0]),
    "members": members,
    "pass": lambda _, group, words: group.pass_time(int(words[0])),
    "put": put,
    "read": lambda _, group, words: group.read(words[0]),
    "save": lambda _, group, words: [group.save(word) for word in words],
    "settle": lambda _, group, words: group.settle(),
    "sleep": sleep,
    "start": lambda _, group, words: group.start(words[0]),
    "state": state,
    "sync": lambda _, group, words: [group.sync(word) for word in words],
    "tick": lambda _, group, words: group.happen(words[0], Tick()),
    "transfer": lambda _, group, words: group.transfer(words[0], words[1]),
    "wake": wake,
}


def played(text: str) -> str:
    """The file as it must be: its commands, with the traces that they leave."""
    scenario, lines = Scenario(), []
    is_trace = False
    for line in text.splitlines():
        if is_trace and line:
            continue
        lines.append(line)
        if line == DASHES:
            lines += scenario.trace
            scenario.trace = []
        elif line and not line.startswith("#"):
            scenario.play(line)
        is_trace = line == DASHES
    return "\n".join(lines) + "\n"


def files() -> list[Path]:
    return sorted(FOLDER.glob("*.txt"))


if __name__ == "__main__":
    for file in files():
        file.write_text(played(file.read_text(encoding="utf-8")), encoding="utf-8")
