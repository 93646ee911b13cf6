"""Random schedules of a group: what a network, disks, power and clients may do, by weight.

Quiet stretches, in which all that is under way arrives and becomes durable in some order, stand
between the faults: else nobody would lead for long, and little would be committed.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from engine.raft.members import Members
from tests.unit.raft.group import Group, Host

LETTERS_MAX = 60


def play(seed: int | str, steps: int = 1000) -> Group:
    """One schedule, and everything whole again at its end."""
    chance = random.Random(seed)
    group = Group(chance.choice(["abc", "abc", "abcde", "abcd"]), chance=chance)
    chosen = chance.choices(list(STEPS), list(STEPS.values()), k=steps)
    for one in chosen:
        if not group.up():
            wake(group, chance)
        one(group, chance)
    group.settle()
    return group


def any_up(group: Group, chance: random.Random) -> Host:
    return chance.choice(group.up())


def with_leader(work: Callable[[Group, random.Random, Host], None]) -> Callable[..., None]:
    """A step that somebody does who takes himself for the leader."""

    def one(group: Group, chance: random.Random) -> None:
        leaders = group.leaders()
        if leaders:
            work(group, chance, chance.choice(leaders))

    return one


def deliver(group: Group, chance: random.Random) -> None:
    if not group.letters:
        return
    place = 0 if chance.random() < 0.6 else chance.randrange(len(group.letters))
    fate = chance.random()
    if fate < 0.06:
        group.letters.pop(place)
    else:
        group.deliver(place, keep=fate > 0.95)
    if len(group.letters) > LETTERS_MAX:
        del group.letters[: LETTERS_MAX // 3]


def quiet(group: Group, chance: random.Random) -> None:
    """Some rounds in which nothing is lost."""
    for _ in range(chance.randint(1, 4)):
        group.pass_time(50)
        for _ in range(len(group.letters)):
            if group.letters:
                group.deliver(chance.randrange(min(3, len(group.letters))))
        for host in group.up():
            group.save(host.node)
            if chance.random() < 0.8:
                group.sync(host.node)
            group.install(host.node)


def pass_time(group: Group, chance: random.Random) -> None:
    group.pass_time(chance.choice([10, 50, 100, 300, 3000]))


def cut_way(group: Group, chance: random.Random) -> None:
    one, other = chance.sample(sorted(group.hosts), 2)
    group.cut_way(one, other)
    if chance.random() < 0.5:
        group.cut_way(other, one)


def wake(group: Group, chance: random.Random) -> None:
    """One starts that was down; those that slept go on."""
    down = [host.node for host in group.hosts.values() if not host.is_up]
    if down:
        group.start(chance.choice(down))
    for host in group.hosts.values():
        host.is_paused = False


def sleep(group: Group, chance: random.Random) -> None:
    any_up(group, chance).is_paused = True


def change_members(group: Group, chance: random.Random, leader: Host) -> None:
    members = leader.state.members
    lost = [voter for voter in members.voters if voter in group.lives]
    new = [node for node in group.hosts if node not in members.all]
    if lost:
        voters = tuple(voter for voter in members.voters if voter not in lost)
        group.change_members(leader.node, Members(voters, members.learners))
    elif new:
        group.change_members(leader.node, Members(members.voters, (*members.learners, new[0])))
    elif members.learners and chance.random() < 0.7:
        voters = (*members.voters, members.learners[0])
        group.change_members(leader.node, Members(voters, members.learners[1:]))
    elif len(members.voters) > 1:
        gone = chance.choice(members.voters)
        voters = tuple(voter for voter in members.voters if voter != gone)
        group.change_members(leader.node, Members(voters, (*members.learners, gone)))


def lose_disk(group: Group, chance: random.Random) -> None:
    """One of three voters or more loses its disk, and nobody else ever does."""
    voters = [host.state.members.voters for host in group.hosts.values()]
    if not group.lives and min(map(len, voters)) >= 3:
        group.lose_disk(any_up(group, chance).node)


def transfer(group: Group, chance: random.Random, leader: Host) -> None:
    group.transfer(leader.node, chance.choice(sorted(group.hosts)))


def put(group: Group, chance: random.Random, leader: Host) -> None:
    for _ in range(chance.randint(1, 4)):
        group.put(leader.node, chance.randint(1, 5))


STEPS: dict[Callable[[Group, random.Random], None], float] = {
    deliver: 40,
    quiet: 8,
    pass_time: 6,
    lambda group, chance: group.save(any_up(group, chance).node): 12,
    lambda group, chance: group.begin_sync(any_up(group, chance).node): 6,
    lambda group, chance: group.end_sync(any_up(group, chance).node): 8,
    lambda group, chance: group.install(any_up(group, chance).node): 1,
    with_leader(put): 8,
    with_leader(lambda group, chance, leader: group.read(leader.node) and None): 1,
    with_leader(transfer): 0.7,
    with_leader(change_members): 0.7,
    cut_way: 1.5,
    lambda group, chance: group.heal(): 2,
    lambda group, chance: group.crash(any_up(group, chance).node): 1,
    wake: 2.5,
    sleep: 0.4,
    lose_disk: 0.15,
    lambda group, chance: group.forget_begin(any_up(group, chance).node): 0.5,
}
