"""The project's own files, as the architecture tests read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("engine", "pipelines", "dashboards", "expectations", "demo", "experiment")
CODE_FOLDERS = (*PACKAGES, "provision", "bench", "tests")
TEXT_SUFFIXES = {
    *(
        ".py",
        ".md",
        ".toml",
        ".xml",
        ".txt",
        ".java",
        ".sh",
        ".css",
        ".js",
        ".ipynb",
        ".json",
        ".yml",
    ),
}
HERE = "tests/architecture/"  # These files name what they forbid.


@dataclass(frozen=True)
class Module:
    """One Python file: its path below the project folder and its syntax tree."""

    name: str

    @property
    def path(self) -> Path:
        return ROOT / self.name

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.name)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All that stands in the tree, so that each question need not walk through it again."""
        return tuple(ast.walk(self.tree))

    def imports(self) -> Iterator[tuple[str, int]]:
        """Every imported module, also inside functions, with its line."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.name, node.lineno
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module, node.lineno


@cache
def read_once(name: str) -> Module:
    """The module, with its text and tree once somebody has asked for them."""
    return Module(name)


def modules(*folders: str) -> list[Module]:
    """Python files below the folders, in order of their names; `tidemark.py` belongs to `.`."""
    found = []
    for folder in folders:
        found += [read_once(str(path.relative_to(ROOT))) for path in (ROOT / folder).rglob("*.py")]
    return sorted(found, key=lambda module: module.name)


def all_code() -> list[Module]:
    """Every Python file of the project."""
    return [*modules(*CODE_FOLDERS), read_once("tidemark.py")]


@cache
def all_texts() -> list[Path]:
    """Every text a reader of the project may open, without what runs and tools leave behind."""
    folders = (*CODE_FOLDERS, "docs", "notebooks", ".ci")
    found = [path for path in ROOT.iterdir() if path.is_file() and path.name != "uv.lock"]
    for folder in folders:
        found += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    return sorted(
        path
        for path in found
        if (path.suffix in TEXT_SUFFIXES or path.name in {"Makefile", "run"})
        and not str(path.relative_to(ROOT)).startswith(HERE)
        and ".ipynb_checkpoints" not in path.parts
        and not path.name.endswith(".min.js")  # A library's own file, unchanged.
    )


def report(findings: list[str]) -> str:
    """Findings as one readable failure text."""
    return f"{len(findings)} finding(s):\n" + "\n".join(findings)
