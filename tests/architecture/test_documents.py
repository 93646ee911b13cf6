"""Documents say what is there: links resolve, named files, targets and variables exist, decisions
carry number, date and status, rows lead to tests.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path, PurePath

import pytest

from tests import gold_tables
from tests.architecture.source_tree import ROOT, all_code, all_texts, modules, report
from tests.rows import LINE, PAGE, catching, listed, named_in_code, planted, rewritten

SPAN = re.compile(r"`([^`\n]+)`")
INDENTED = re.compile(r"^    (\S.*)$", re.MULTILINE)
PLACE = re.compile(r"(?:[a-z_]+/)+(?:[a-z0-9_*-]+(?:\.[a-z]+)?)?")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
ADR = ROOT / "docs" / "adr"
NUMBERED = re.compile(r"^(\d{4})-[a-z0-9-]+\.md$")
HEAD = re.compile(
    r"^# \S[^\n]*\n\nStatus: (accepted|superseded by \d{4}|proposed)\. "
    r"Date: \d{4}-\d{2}-\d{2}\.\n"
)

ELSEWHERE = re.compile(
    r"\(spec:|; spec:|Source:\s+spec\b|\b(features|rocketmq|reliability|performance)\.md\b"
)
"""Words that lead to a document which no reader of the project has."""

documents = [path for path in all_texts() if path.suffix == ".md"]
present = [path for path in documents if path.name != "CHANGELOG.md"]
"""Those that speak of the project as it is now; the changelog says what was."""
decisions = sorted(path for path in ADR.glob("*.md") if path.name != "README.md")


@pytest.mark.parametrize("path", documents, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_document_leads_somewhere(path: Path) -> None:
    broken = [
        target
        for target in LINK.findall(path.read_text(encoding="utf-8"))
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert not broken, f"{path.name} links to {broken}"


@pytest.mark.parametrize("path", present, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_folder_and_module_that_a_document_names_is_there(path: Path) -> None:
    named = {name for name in SPAN.findall(path.read_text(encoding="utf-8")) if is_a_place(name)}
    missing = sorted(name for name in named if not is_there(name))
    assert not missing, f"{path.name} names {missing}"


def test_the_recipes_name_many_files() -> None:
    named = SPAN.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert sum(map(is_a_place, named)) > 40


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("engine/store/queries.py", False),
        ("engine/store/message_store.py", True),
        ("broker/handlers/send", True),
        ("broker/handlers/sending", False),
        ("tests/mutants/*.toml", True),
        ("tests/mutants/*.json", False),
        ("upkeep/", True),
    ],
)
def test_a_place_is_distinguished_from_one_that_is_gone(name: str, there: bool) -> None:
    assert is_a_place(name)
    assert is_there(name) is there


def is_a_place(name: str) -> bool:
    """Does it say where something is in the project? A store, a lake and a set-up have files too:
    their folders are none of the project's.
    """
    return PLACE.fullmatch(name) is not None and name.split("/", maxsplit=1)[0] in folder_names()


def is_there(name: str) -> bool:
    """Is it the path of a file, folder or module, or how such a path ends?"""
    wanted = (name.rstrip("/"), f"{name}.py")
    if "*" in name:
        return any(PurePath(place).match(ending) for place in places() for ending in wanted)
    return not endings().isdisjoint(wanted)


@cache
def places() -> frozenset[str]:
    """Every file of the project, and every folder with one in it."""
    files = [path.relative_to(ROOT) for path in all_texts()]
    files += [Path(module.name) for module in modules("tests/architecture")]
    return frozenset(str(place) for file in files for place in (file, *file.parents))


@cache
def endings() -> frozenset[str]:
    """How their paths end, in whole names."""
    parts = [PurePath(place).parts for place in places()]
    return frozenset("/".join(path[at:]) for path in parts for at in range(len(path)))


@cache
def folder_names() -> frozenset[str]:
    return frozenset(Path(place).name for place in places() if (ROOT / place).is_dir())


def test_every_target_and_variable_that_a_document_names_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    read = "".join(module.text for module in all_code()) + makefile
    findings = []
    for path in present:
        text = path.read_text(encoding="utf-8")
        code = "\n".join([*SPAN.findall(text), *INDENTED.findall(text)])
        findings += [
            f"{path.name}: make {target}"
            for target in sorted(set(re.findall(r"\bmake ([a-z][a-z-]*)", code)) - targets)
        ]
        findings += [
            f"{path.name}: {name}"
            for name in sorted(set(re.findall(r"\bTIDEMARK_[A-Z_]+\b", code)))
            if f'"{name}"' not in read and f"{name}=" not in read
        ]
    assert not findings, report(findings)


def test_every_decision_has_number_title_status_and_date() -> None:
    findings = []
    for path in decisions:
        if not NUMBERED.match(path.name):
            findings.append(f"{path.name}: its name begins with its number, 0001-what-was-decided")
        if not HEAD.match(path.read_text(encoding="utf-8")):
            findings.append(
                f"{path.name}: begins with '# Title', then 'Status: accepted. Date: 2026-11-22.'"
            )
    assert not findings, report(findings)


def test_decisions_are_numbered_without_a_gap_and_all_of_them_are_listed() -> None:
    numbers = [int(found[1]) for path in decisions if (found := NUMBERED.match(path.name))]
    assert numbers == list(range(1, len(numbers) + 1))
    listing = (ADR / "README.md").read_text(encoding="utf-8")
    unlisted = [path.name for path in decisions if f"({path.name})" not in listing]
    assert not unlisted, f"docs/adr/README.md does not list {unlisted}"


def test_a_row_that_code_or_a_planted_bug_names_is_on_the_page_of_rows() -> None:
    known = set(listed(PAGE.read_text(encoding="utf-8")))
    findings = [
        f"{row}, named by {files[0]}" for row, files in named_in_code().items() if row not in known
    ]
    findings += [f"{row}, named by a planted bug" for row in planted() if row not in known]
    assert not findings, f"not in docs/rows.md: {report(findings)}"


def test_the_page_of_rows_says_which_tests_name_them() -> None:
    page = PAGE.read_text(encoding="utf-8")
    now = rewritten(page, named_in_code(), planted(), catching())
    assert page == now, "run `python -m tests.rows`"


def test_every_row_of_the_page_leads_to_a_test_that_is_there() -> None:
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if (row := LINE.match(line)) and row[1] != "row":
            tests = re.findall(r"`([^`]+\.py)`", line.rsplit("|", 3)[1])
            assert tests, f"row {row[1]} names no test"
            missing = [name for name in tests if not (ROOT / "tests" / name).exists()]
            assert not missing, f"row {row[1]} names {missing}"


def test_nothing_points_to_documents_that_are_not_here() -> None:
    findings = [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 1} {found[0]!r}"
        for path in all_texts()
        if (text := path.read_text(encoding="utf-8"))
        for found in ELSEWHERE.finditer(text)
    ]
    assert not findings, report(findings)


def test_the_page_of_gold_tables_is_what_the_marts_declare() -> None:
    assert gold_tables.PAGE.read_text(encoding="utf-8") == gold_tables.page(), (
        "run `python -m tests.gold_tables`"
    )


def test_what_a_newcomer_reads_first_is_short() -> None:
    for name, lines_max in (("ARCHITECTURE.md", 250), ("README.md", 120)):
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        assert len(lines) <= lines_max, f"{name} has {len(lines)} lines, {lines_max} at most"
    wide = [line for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines() if len(line) > 120]
    assert not wide, report(wide)
