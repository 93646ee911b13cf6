"""Each file of a store, each damage, each kind of stop: what a broker that starts on it has, and
what it reports. A row of the table of damaged files is a test.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.integration.broker.damaged_files import FILES, TABLES, Kept, Outcome, document, rows
from tests.integration.broker.worn_store import (
    DAMAGES,
    Inventory,
    Start,
    less,
    prepare,
    rows_in,
    start_on,
)

ROOT = Path(__file__).parents[3]
ROWS = list(rows())
CASES = [
    pytest.param(
        *(kept, damage, clean, expected),
        id=f"{kept.name}-{damage}-{'clean' if clean else 'unclean'}",
        # Where either stop leads to the same outcome, the suite takes the unclean one.
        marks=[pytest.mark.slow] if clean and (kept, damage, False, expected) in ROWS else [],
    )
    for kept, damage, clean, expected in ROWS
]
DOCUMENTS = [name for name in TABLES if name.endswith(".json")]
"""Tables with the version before beside them."""


class Stores:
    """The sound store of each kind of stop, what a broker has on it, and another store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own: dict[bool, tuple[Path, Inventory]] = {}
        self._another: dict[bool, Path] = {}

    def own(self, *, clean: bool) -> tuple[Path, Inventory]:
        if clean not in self._own:
            root = prepare(self._folder / f"own-{clean}", "own", "orders", clean=clean)
            copy = self._folder / f"sound-{clean}" / "store"
            shutil.copytree(root, copy)
            start = start_on(copy)
            assert start.refused is None
            assert start.reported == [], "a sound store has nothing to report"
            has = {name: value for name, value in start.has.items() if name[0] != "row"}
            self._own[clean] = root, has | rows_in(root)
        return self._own[clean]

    def another(self, *, clean: bool) -> Path:
        if clean not in self._another:
            folder = self._folder / f"another-{clean}"
            self._another[clean] = prepare(folder, "another", "wares", clean=clean)
        return self._another[clean]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


def only(root: Path, pattern: str) -> Path:
    return min(root.glob(pattern))


def outcome_of(start: Start, gone: list[tuple[object, ...]]) -> set[Outcome]:
    """The words of the table that fit what was seen."""
    if not start.reported:
        return set() if gone else {Outcome.SAME}
    return {Outcome.LESS if gone else Outcome.MENDED, Outcome.FALLBACK}


@pytest.mark.parametrize(("kept", "damage", "clean", "expected"), CASES)
def test_a_damaged_file_is_mended_or_reported(
    tmp_path: Path, stores: Stores, kept: Kept, damage: str, clean: bool, expected: Outcome
) -> None:
    sound, before = stores.own(clean=clean)
    root = tmp_path / "store"
    shutil.copytree(sound, root)
    victim = only(root, kept.pattern)
    DAMAGES[damage](victim, only(stores.another(clean=clean), kept.pattern))
    start = start_on(root)
    assert start.refused is None, start.refused
    gone = less(before, start.has)
    assert start.reported or not gone, f"gone, and nothing was reported: {gone[:5]}"
    assert expected in outcome_of(start, gone), f"gone: {gone[:5]}; reported: {start.reported[:3]}"
    again = start_on(root)
    assert again.refused is None, f"the next start is refused: {again.refused}"
    left = {name: value for name, value in start.has.items() if name in before}
    lost_again = [name for name in less(left, again.has) if name[0] != "row"]
    assert not lost_again, f"the next start has less again: {lost_again[:5]}"


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("table", DOCUMENTS)
def test_without_a_readable_version_the_start_is_refused_and_says_what_to_do(
    tmp_path: Path, stores: Stores, table: str, clean: bool
) -> None:
    root = tmp_path / "store"
    shutil.copytree(stores.own(clean=clean)[0], root)
    for name in (table, f"{table}.bak"):
        (root / "config" / name).write_bytes(b"{")
    start = start_on(root)
    assert start.refused is not None
    assert f"{table}.bak is damaged" in start.refused
    assert "remove the damaged files to begin with an empty table" in start.refused


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_without_readable_settings_the_start_is_refused_and_says_what_to_do(
    tmp_path: Path, stores: Stores, clean: bool
) -> None:
    root = tmp_path / "store"
    shutil.copytree(stores.own(clean=clean)[0], root)
    for name in ("broker.properties", "broker.properties.bak"):
        (root / "config" / name).write_bytes(b"")
    start = start_on(root)
    assert start.refused is not None
    assert "broker.properties is empty" in start.refused
    assert "broker.properties.bak is empty: remove the damaged files" in start.refused


LOCKS = ("lock", "spool/writer.lock")
"""Files without content."""


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_no_file_of_a_store_is_missing_in_the_table(stores: Stores, clean: bool) -> None:
    root = stores.own(clean=clean)[0]
    known = {path for kept in FILES for path in root.glob(kept.kind)}
    known |= {root / name for name in LOCKS}
    there = {path for path in root.rglob("*") if path.is_file()}
    assert there - known == set(), "what becomes of them when they are damaged?"


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("table", [*DOCUMENTS, "broker.properties"])
def test_a_table_that_is_gone_with_the_version_before_it_is_reported(
    tmp_path: Path, stores: Stores, table: str, clean: bool
) -> None:
    sound, before = stores.own(clean=clean)
    root = tmp_path / "store"
    shutil.copytree(sound, root)
    for name in (table, f"{table}.bak"):
        (root / "config" / name).unlink()
    start = start_on(root)
    assert start.refused is None
    assert any(f"{table} and its .bak are gone" in words for words in start.reported), (
        start.reported
    )
    gone = {name[0] for name in less(before, start.has)}
    assert not {"message", "key"} & gone, "messages are in the log, whatever the tables say"


def test_the_document_says_what_the_rows_say() -> None:
    written = (ROOT / "docs" / "damaged-files.md").read_text(encoding="utf-8")
    assert written == document(), (
        "write it anew: python -m tests.integration.broker.damaged_files > docs/damaged-files.md"
    )
