"""Cases of public projects that are not ours to copy: run where they are at hand, named where not.

They lie in the folder that TIDEMARK_RULE_CASES names, or in `shared/cases` beside this project.
"""

from __future__ import annotations

import pytest

from tests.unit.pipelines.foreign_cases import FILES, folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out, and why."""
    missing = [name for name in FILES if not (folder() / name).exists()]
    if missing:
        terminalreporter.write_line(
            f"left out, for TIDEMARK_RULE_CASES names no folder with them: {', '.join(missing)}"
        )
