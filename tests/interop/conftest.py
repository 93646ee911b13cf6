"""Fixtures of the interop tests: compiled Java checks, a real Apache RocketMQ, our engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.java_clients import JavaChecks, compile_checks
from tests.interop.our_engine import AS_THE_REAL_ONE, QUICK_CHECKS, OurEngine, our_engine
from tests.interop.real_rocketmq import RECALLING, RealRocketMQ, real_rocketmq


@pytest.fixture(scope="session")
def java_checks(tmp_path_factory: pytest.TempPathFactory) -> JavaChecks:
    """The Java checks, compiled once per run."""
    return compile_checks(tmp_path_factory.mktemp("java-checks"))


@pytest.fixture(scope="package")
def apache_rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRocketMQ]:
    """One real Apache RocketMQ for all tests of this folder, which use topics and groups of their
    own. It takes of the processor even when nobody asks it: files that use it come last.
    """
    with real_rocketmq(tmp_path_factory.mktemp("apache-rocketmq"), RECALLING) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def engine_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurEngine]:
    """Our engine without a lake, one per test module; it evaluates selectors, as the real one."""
    folder = tmp_path_factory.mktemp("our-engine")
    with our_engine(folder, *QUICK_CHECKS, *AS_THE_REAL_ONE) as engine:
        yield engine
