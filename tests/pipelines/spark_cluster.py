"""A Spark standalone cluster whose master, workers and driver are on hosts of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.pipelines.separate_hosts import Host, separate_hosts

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
PORT = 7077
PATIENCE_S = 120
REGISTERED = "Registering worker"


@dataclass(frozen=True)
class SparkCluster:
    """The cluster, and the host for its driver."""

    url: str
    driver: Host

    def start(self, words: Sequence[str]) -> subprocess.Popen[str]:
        """Start Python with these words on the driver's host."""
        return subprocess.Popen(
            [*self.driver.enter, sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )


@contextmanager
def spark_cluster(folder: Path, *, workers: int) -> Iterator[SparkCluster]:
    """A master and so many workers of one core, all registered; logs lie in `folder`.

    Spark's core is a task at a time, whose Java and Python compute side by side: without a
    processor of its own (as far as there are enough) a worker of one core takes two.
    """
    processors = sorted(os.sched_getaffinity(0))
    with separate_hosts(workers + 2) as (first, driver, *others), ExitStack() as stack:
        url = f"spark://{first.address}:{PORT}"
        log = folder / "master.log"
        _start(stack, first, log, "master.Master", "--port", str(PORT))
        for number, host in enumerate(others):
            place = folder / f"worker-{number}"
            limits = ("--cores", "1", "--memory", "1g", "--work-dir", str(place))
            with _on_processor(processors[number % len(processors)]):
                _start(stack, host, folder / f"worker-{number}.log", "worker.Worker", *limits, url)
        deadline_s = time.monotonic() + PATIENCE_S
        while log.read_text().count(REGISTERED) < workers:
            assert time.monotonic() < deadline_s, f"workers do not register:\n{log.read_text()}"
            time.sleep(0.2)
        yield SparkCluster(url, driver)


@contextmanager
def _on_processor(processor: int) -> Iterator[None]:
    """What is started meanwhile, and all that it starts, computes on this processor alone."""
    all_of_ours = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {processor})
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_of_ours)


def _start(stack: ExitStack, host: Host, log: Path, party: str, *options: str) -> None:
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": host.address,
        "SPARK_LOCAL_DIRS": str(log.with_suffix(".local")),
        "PYSPARK_PYTHON": sys.executable,
    }
    log_file = stack.enter_context(log.open("w", encoding="utf-8"))
    words = (f"org.apache.spark.deploy.{party}", "--host", host.address, "--webui-port", "0")
    process = stack.enter_context(
        subprocess.Popen(
            [*host.enter, str(SPARK_CLASS), *words, *options],
            env=environment,
            cwd=log.parent,
            stdout=log_file,
            stderr=log_file,
        )
    )
    stack.callback(process.kill)
