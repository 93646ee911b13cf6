"""Finds the tests and planted bugs that name each row of docs/rows.md, and lists them there.

    python -m tests.rows        # write the two right columns anew

A module or a function says its row in its docstring, "Row D4: ..."; a planted bug by its key `row`,
and the tests that see that bug are the row's as well.
Invariant: the page has what the code says, no more and no less; an architecture test compares them.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "rows.md"
SAID_IN = ("engine", "pipelines", "dashboards", "expectations", "demo", "bench", "tests")
NAMED = re.compile(r"\b[Rr]ows?\s+(?=[A-G]\d)")
NEXT = re.compile(r"([A-G]\d{1,2})\b(?:\s*\([a-z]\))?(?:,?\s+and\s+|,\s*)?")
LINE = re.compile(r"^\| ([A-Z][\w ]*\w|[A-Z]) \| ([^|]*) \|[^|]*\|[^|]*\|$")


def rows_named(text: str) -> Iterator[str]:
    """Rows that a text names: "Row D2 (a)", "rows C6, C7 and A5"."""
    for begin in NAMED.finditer(text):
        position = begin.end()
        while found := NEXT.match(text, position):
            yield found[1]
            position = found.end()


def named_in_code(root: Path = ROOT) -> dict[str, list[str]]:
    """Row → files that name it, tests without their folder `tests/`."""
    found: dict[str, list[str]] = defaultdict(list)
    for folder in SAID_IN:
        for path in sorted((root / folder).rglob("*.py")):
            name = str(path.relative_to(root))
            if name == "tests/rows.py" or name.startswith("tests/architecture/"):
                continue
            for row in sorted(set(rows_named(path.read_text(encoding="utf-8")))):
                found[row].append(name)
    return found


def planted(root: Path = ROOT) -> Counter[str]:
    """Row → how many bugs are planted for it."""
    return Counter(
        mutant["row"]
        for path in (root / "tests" / "mutants").glob("*.toml")
        for mutant in tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", [])
    )


def catching(root: Path = ROOT) -> dict[str, set[str]]:
    """Row → test files that see its planted bugs, below `tests/`."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in (root / "tests" / "mutants").glob("*.toml"):
        for mutant in tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", []):
            files = {test.partition("::")[0].partition(" ")[0] for test in mutant["tests"]}
            found[mutant["row"]] |= {one for one in files if one.startswith("tests/")}
    return found


def listed(page: str) -> list[str]:
    """Rows of the page, in its order."""
    return [found[1] for line in page.splitlines() if (found := LINE.match(line))]


def rewritten(
    page: str,
    named: Mapping[str, list[str]],
    bugs: Mapping[str, int],
    caught_by: Mapping[str, set[str]],
) -> str:
    """The page with its two right columns as the code has them."""

    def line_of(found: re.Match[str]) -> str:
        naming = {name for name in named.get(found[1], []) if name.startswith("tests/")}
        files = sorted(naming | caught_by.get(found[1], set()))
        tests = ", ".join(f"`{name.removeprefix('tests/')}`" for name in files)
        return f"| {found[1]} | {found[2]} | {tests} | {'yes' if bugs.get(found[1]) else ''} |"

    lines = page.splitlines()
    return (
        "\n".join(line_of(found) if (found := LINE.match(line)) else line for line in lines) + "\n"
    )


if __name__ == "__main__":
    PAGE.write_text(
        rewritten(PAGE.read_text(encoding="utf-8"), named_in_code(), planted(), catching()),
        encoding="utf-8",
    )
