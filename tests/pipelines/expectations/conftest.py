"""One sound lake, written and checked once; tests get copies of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checked_lake import CheckedLake, failing
from tests.gold_lake import write_gold_lake


@pytest.fixture(scope="session")
def checked_story(tmp_path_factory: pytest.TempPathFactory) -> CheckedLake:
    """A sound lake, checked to its end: copy it, leave it as it is."""
    checked = CheckedLake(write_gold_lake(tmp_path_factory.mktemp("checked") / "lake"))
    assert failing(checked.check()) == {}
    return checked


@pytest.fixture
def fresh(checked_story: CheckedLake, tmp_path: Path) -> CheckedLake:
    """A copy of the test's own."""
    return checked_story.copied_to(tmp_path / "lake")
