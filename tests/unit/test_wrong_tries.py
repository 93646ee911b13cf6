"""How long one has to wait to try again: the same for names that nobody has."""

from __future__ import annotations

from dashboards.web.sign_in_routes import A_NAME, ALL_NAMES, NAMES_MAX, WrongTries

NOW_MS = 1_000_000


def tried(tries: WrongTries, name: str, times: int, now_ms: int = NOW_MS) -> list[int]:
    return [tries.begin(name, now_ms=now_ms) for _ in range(times)]


def test_after_some_wrong_tries_each_wait_is_twice_the_last() -> None:
    tries, now_ms, waits = WrongTries(), NOW_MS, []
    assert tried(tries, "ann", A_NAME.free) == [0] * A_NAME.free
    for _ in range(10):
        waits.append(tries.begin("ann", now_ms=now_ms))
        assert tries.begin("ann", now_ms=now_ms + waits[-1] - 1) == 1, (
            "a try too early does not count"
        )
        now_ms += waits[-1]
        assert tries.begin("ann", now_ms=now_ms) == 0
    assert waits[:4] == [2_000, 4_000, 8_000, 16_000]
    assert waits[-1] == A_NAME.longest_ms
    assert tries.begin("bob", now_ms=now_ms) == 0, "others do not wait for it"


def test_many_at_once_are_no_more_than_many_in_a_row() -> None:
    tries = WrongTries()
    assert tried(tries, "ann", 1_000).count(0) == A_NAME.free


def test_the_right_password_makes_them_forgotten_and_so_does_time() -> None:
    tries = WrongTries()
    tried(tries, "ann", A_NAME.free - 1)
    assert tries.begin("ann", now_ms=NOW_MS) == 0
    tries.was_right("ann")
    assert tried(tries, "ann", A_NAME.free) == [0] * A_NAME.free
    assert tries.begin("ann", now_ms=NOW_MS) > 0
    assert tries.begin("ann", now_ms=NOW_MS + A_NAME.forgotten_ms) == 0


def test_a_try_that_nobody_looked_at_does_not_count() -> None:
    tries = WrongTries()
    for _ in range(100):
        assert tries.begin("ann", now_ms=NOW_MS) == 0
        tries.was_not_looked_at("ann")


def test_many_names_wait_for_each_other_and_not_for_long() -> None:
    tries = WrongTries()
    waits = [tries.begin(f"name {at}", now_ms=NOW_MS) for at in range(ALL_NAMES.free + 1)]
    assert waits[:-1] == [0] * ALL_NAMES.free
    assert 0 < waits[-1] <= ALL_NAMES.longest_ms
    assert tries.begin("ann", now_ms=NOW_MS + ALL_NAMES.longest_ms) == 0


def test_names_are_forgotten_rather_than_kept_without_end() -> None:
    tries = WrongTries()
    for at in range(NAMES_MAX + 10):
        tries.begin("x" * 100 + str(at), now_ms=NOW_MS)
    assert len(tries._by_name) == NAMES_MAX


def test_a_clock_that_is_set_back_makes_nobody_wait_for_longer() -> None:
    tries = WrongTries()
    tried(tries, "ann", A_NAME.free + 1)
    wait_ms = tries.begin("ann", now_ms=NOW_MS - 10_000_000)
    assert 0 < wait_ms <= A_NAME.longest_ms
    assert tries.begin("ann", now_ms=NOW_MS - 10_000_000 + wait_ms) == 0
