"""Our engine as a user starts it, one process for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.our_engine import AS_THE_REAL_ONE, QUICK_CHECKS, OurEngine, our_engine


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurEngine]:
    """`tidemark engine` without a lake; tests use topics and groups of their own."""
    with our_engine(tmp_path_factory.mktemp("engine"), *QUICK_CHECKS, *AS_THE_REAL_ONE) as running:
        yield running
