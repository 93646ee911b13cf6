"""Reads rule files and rule-test files and parses their TOML without interpreting it.

Place in the walk: files → documents → `rules.check`, `rule_tests.cases_of`; pages follow the files
by `RulesRead`. Invariant: a file that cannot be read, or is no TOML, is a fault like any other, and
bounded in size.
"""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from pipelines.alerting.routing import routing_of
from pipelines.alerting.rules import Checked, Fault, check

FILE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of a file: ten thousand rules have less."""
SHIPPED: Final = Path(__file__).parent / "shipped"
"""The rules that come with Tidemark; in `tests` below it, their tests."""


ROUTING: Final = SHIPPED / "routing" / "default.toml"
"""Default file of receivers, routes and inhibitions."""


def shipped_files() -> list[Path]:
    """The files of the rules that come with Tidemark."""
    return sorted(SHIPPED.glob("*.toml"))


def rule_files(given: Sequence[Path]) -> list[Path]:
    """Files of rules: of a folder all that end in .toml; of nothing given, those that are shipped.

    A folder in which none can be found stands for itself, and cannot be read: that there are no
    rules any more would end all alerts.
    """
    if not given:
        return shipped_files()
    return [
        file for path in given for file in (path.is_dir() and sorted(path.glob("*.toml"))) or [path]
    ]


def read_rules(files: Iterable[Path]) -> Checked:
    """The rules of files, with all faults of all of them."""
    documents: dict[str, Any] = {}
    faults: list[Fault] = []
    for file in files:
        document = read_document(file)
        if isinstance(document, Fault):
            faults.append(document)
        else:
            documents[str(file)] = document
    checked = check(documents)
    return Checked(checked.rules, (*faults, *checked.faults))


def faults_of_routing(file: Path) -> tuple[Fault, ...] | None:
    """What is wrong with a file of routes; None: it is none."""
    document = read_document(file)
    if isinstance(document, Fault) or "receiver" not in document:
        return None
    return routing_of(str(file), document).faults


def read_document(file: Path) -> dict[str, Any] | Fault:
    """What a file says; a fault when it cannot be read."""
    try:
        with file.open("rb") as opened:
            data = opened.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            return _fault(file, f"it is larger than {FILE_BYTES_MAX >> 20} MiB: divide it")
        return tomllib.loads(data.decode("utf-8"))
    except IsADirectoryError:
        return _fault(file, "it is a folder without a file that ends in .toml")
    except OSError as error:
        return _fault(file, f"it cannot be read: {error.strerror}")
    except (ValueError, RecursionError) as error:
        return _fault(file, f"it is no TOML: {error}")


def _fault(file: Path, what: str) -> Fault:
    return Fault(str(file), "", "", "", what)


class RulesRead:
    """Rules of files, kept while the files stay as they are. Safe for use by several threads."""

    def __init__(self, given: Sequence[Path] = ()) -> None:
        """given: files and folders, as the process takes them; none: the shipped ones."""
        self._given = given
        self._lock = threading.Lock()
        self._seen: object = None
        self._checked = Checked()

    def read(self) -> Checked:
        """The rules, and all that is wrong with their files."""
        with self._lock:
            files = rule_files(self._given)
            seen = [(file, _stamp(file)) for file in files]
            if seen != self._seen:
                self._checked = read_rules(files)
                self._seen = seen
            return self._checked


def _stamp(file: Path) -> tuple[int, int]:
    try:
        stat = file.stat()
    except OSError:
        return -1, -1
    return stat.st_mtime_ns, stat.st_size
