"""The folder a demo plays in: what an earlier one made goes, nothing else, not while one plays."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from demo import stage
from demo.home import MADE, MARKER, fresh_home
from engine.foundation.errors import ConfigError


def leave_behind(home: Path) -> None:
    """What a demo leaves."""
    (home / "lake" / "gold").mkdir(parents=True)
    (home / "lake" / "gold" / "rows").write_text("figures")
    (home / "store").symlink_to("/nowhere")
    (home / "accounts").write_text("left")


def test_each_demo_finds_an_empty_folder_with_room_for_logs(tmp_path: Path) -> None:
    for _ in range(2):
        with fresh_home(tmp_path / "home") as home:
            assert sorted(path.name for path in home.iterdir()) == ["logs", MARKER]
            assert not any((home / "logs").iterdir())
            leave_behind(home)
    assert (tmp_path / "home" / "accounts").exists(), "what a demo left stays until the next one"


def test_while_a_demo_plays_its_folder_is_refused_to_others_and_kept(tmp_path: Path) -> None:
    with fresh_home(tmp_path) as home:
        leave_behind(home)
        for _ in range(2):
            with pytest.raises(ConfigError, match="a demo is playing in it"), fresh_home(home):
                pass
        assert (home / "lake" / "gold" / "rows").exists()
    with fresh_home(tmp_path) as home:
        assert not (home / "lake").exists()


def test_a_demo_that_fails_gives_its_folder_free(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), fresh_home(tmp_path):
        raise KeyboardInterrupt
    with fresh_home(tmp_path):
        pass


def test_what_somebody_put_into_the_folder_of_an_earlier_demo_stays(tmp_path: Path) -> None:
    with fresh_home(tmp_path):
        pass
    tried = tmp_path / "try" / "commitlog"
    tried.parent.mkdir()
    tried.write_text("messages")
    with fresh_home(tmp_path):
        assert tried.read_text() == "messages"
    assert tried.exists()


def test_all_that_a_demo_makes_goes(tmp_path: Path) -> None:
    with fresh_home(tmp_path) as home:
        for name in MADE:
            (home / name / "part").mkdir(parents=True)
    with fresh_home(tmp_path) as home:
        assert sorted(path.name for path in home.iterdir()) == ["logs", MARKER]


def test_a_demo_puts_nothing_else_into_its_folder() -> None:
    """So that nothing of it outlives the next one."""
    named = {
        name
        for path in Path(stage.__file__).parent.glob("*.py")
        for name in re.findall(r"\bhome / \"(\w+)\"", path.read_text(encoding="utf-8"))
    }
    assert named == set(MADE)


def test_what_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work")
    for home in (tmp_path, thesis):
        with pytest.raises(ConfigError, match="made by an earlier demo"), fresh_home(home):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
