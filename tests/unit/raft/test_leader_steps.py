"""Row C11: what a leader sends to a follower that is far behind."""

from __future__ import annotations

from engine.raft.messages import Append
from tests.unit.raft.group import SETTINGS, Group


def lagging() -> Group:
    """a leads; c has nothing of a long log, and has just refused what comes behind it."""
    group = Group()
    group.isolate("c")
    group.elect("a")
    for _ in range(20):
        group.put("a", 5)
        group.deliver_all()
    group.heal()
    group.pass_time(100)
    return group


def appends(group: Group, to: str) -> list[Append]:
    return [
        letter.message
        for letter in group.letters
        if letter.to == to and isinstance(letter.message, Append)
    ]


def test_a_long_rest_goes_piece_by_piece_however_often_it_is_answered() -> None:
    group = lagging()
    for _ in range(14):
        for letter in list(group.letters):
            if "c" in {letter.sender, letter.to}:
                at = next(n for n, each in enumerate(group.letters) if each is letter)
                group.deliver(at, keep=True)  # And once more.
                group.deliver_letter(letter)
        group.save("c")
        group.sync("c")
        assert len({message.prev for message in appends(group, "c")}) <= 2
        assert len(appends(group, "c")) <= 4
    assert group.hosts["c"].log.end > 2 * SETTINGS.append_bytes_max


def test_a_probe_that_was_lost_goes_again_with_the_next_heartbeat() -> None:
    group = lagging()
    group.deliver_all(3)
    has = group.hosts["c"].log.end
    assert has < group.hosts["a"].log.end
    group.letters.clear()
    group.pass_time(100)
    group.deliver_all(200)
    assert group.hosts["c"].log.end == group.hosts["a"].log.end
