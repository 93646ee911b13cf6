"""Documents say what is there: links resolve, named files exist, decisions carry number, date and
status, rows lead to tests.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT, all_texts, report
from tests.rows import LINE, PAGE, catching, listed, named_in_code, planted, rewritten

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
decisions = sorted(path for path in ADR.glob("*.md") if path.name != "README.md")


@pytest.mark.parametrize("path", documents, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_document_leads_somewhere(path: Path) -> None:
    broken = [
        target
        for target in LINK.findall(path.read_text(encoding="utf-8"))
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert not broken, f"{path.name} links to {broken}"


def test_every_file_that_contributing_names_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.(?:py|md))?)`", text))
    missing = sorted(name for name in named if not (ROOT / name).exists())
    assert len(named) > 20
    assert not missing, f"CONTRIBUTING.md names {missing}"


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
