"""A pytest plugin for runs with a planted bug: records the first test that failed.

It is loaded by `-p tests.mutants.judging`.

Hypothesis does not shrink the example of a bug that is known. Invariant: no test passes or fails
because of it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import Phase, settings

FAILED_FIRST = "TIDEMARK_FAILED_FIRST"
"""Names the file that gets the id of the first test that failed."""


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """After the project's own settings of Hypothesis, before a test reads them."""
    settings.register_profile("planted", settings(), phases=[Phase.explicit, Phase.generate])
    settings.load_profile("planted")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the first that failed, in its call or around it."""
    note = Path(os.environ[FAILED_FIRST])
    if report.failed and not note.exists():
        note.write_text(report.nodeid, encoding="utf-8")
