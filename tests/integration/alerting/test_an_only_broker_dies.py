"""The only broker of a lake is killed: the alert names it, and no other process is blamed.

Engine with its shipper, pipeline, `tidemark alerts run` with the shipped rules and routes, and a
webhook, as a user starts them. Nothing else happens.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from demo.ports import free_broker_port, free_port_block
from demo.processes import Actor, module, stop_all, tidemark
from pipelines import tm
from tests.integration.alerting.receiving_server import Ledger, receiving

READY_S = 90.0
SILENT_S = 25
"""So long a broker may be silent, by its own period."""
TELLING = """
allow_private_hosts = ["127.0.0.1"]
[[receivers]]
name = "hook"
kind = "webhook"
url = "{url}/hook"
[routing]
receiver = "hook"
group_by = ["alertname"]
group_wait = "0s"
group_interval = "1s"
"""
Told = dict[str, Any]


class Cluster:
    """The processes, and what the webhook was sent."""

    def __init__(self, home: Path, ledger: Ledger) -> None:
        self.ledger = ledger
        self.lake = home / "lake"
        logs = home / "logs"
        logs.mkdir()
        names_port, broker_port = free_port_block(1), free_broker_port()
        self.metrics_port = free_port_block(1)
        telling = home / "telling.toml"
        telling.write_text(TELLING.format(url=ledger.url))
        places = ("--store", str(home / "store"), "--lake", str(self.lake))
        ports = ("--namesrv-port", str(names_port), "--broker-port", str(broker_port))
        self.engine = Actor("engine", tidemark("engine", *places, *ports), logs)
        driver = module("tests.pipelines.in_process", str(self.lake), "1000000")
        self.pipeline = Actor("pipeline", driver, logs)
        words = ("alerts", "run", "--lake", str(self.lake), "--receivers", str(telling))
        own = (
            "--database",
            f"sqlite:///{home / 'tidemark.db'}",
            "--metrics-port",
            str(self.metrics_port),
        )
        self.alerting = Actor("alerting", tidemark(*words, *own), logs)

    @property
    def actors(self) -> list[Actor]:
        return [self.alerting, self.pipeline, self.engine]

    def firing(self) -> dict[str, Told]:
        """By rule, what fires, as it was sent last."""
        last: dict[str, Told] = {}
        for request in self.ledger.received:
            for one in request.decoded["alerts"]:
                last[one["labels"]["alertname"]] = one
        return {name: one for name, one in last.items() if one["status"] == "firing"}

    def kill_the_engine(self) -> None:
        """kill -9, of the whole session: the shipper dies with its broker."""
        os.killpg(self.engine.pid, signal.SIGKILL)


@contextmanager
def playing(home: Path) -> Iterator[Cluster]:
    with receiving() as ledger:
        cluster = Cluster(home, ledger)
        try:
            cluster.engine.start()
            cluster.engine.wait_for_line("ready", within_s=READY_S)
            eventually((cluster.lake / "bronze" / "shipments").exists, within_s=30)
            cluster.pipeline.start()
            cluster.alerting.start()
            yield cluster
        finally:
            stop_all(cluster.actors)


def eventually(holds: Callable[[], object], *, within_s: float) -> float:
    """Wait until it does; how long that took."""
    begun_s = time.monotonic()
    while not holds():
        assert time.monotonic() - begun_s < within_s, "it does not come to that"
        time.sleep(0.2)
    return time.monotonic() - begun_s


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_the_alert_names_the_broker_and_every_reader_says_the_same(tmp_path: Path) -> None:
    with playing(tmp_path) as cluster:
        eventually(lambda: "Watchdog" in cluster.firing(), within_s=READY_S)
        assert set(cluster.firing()) <= {"Watchdog"}
        cluster.kill_the_engine()
        took_s = eventually(lambda: "BrokerSilent" in cluster.firing(), within_s=120)
        sys.stdout.write(f"BrokerSilent was notified {took_s:.0f} s after the kill\n")
        assert took_s <= SILENT_S + 60
        alert = cluster.firing()["BrokerSilent"]
        broker = alert["labels"]["broker"]
        assert broker in alert["annotations"]["summary"]

        emitters = tm.connect(cluster.lake).emitters()
        assert emitters.df["state"].to_list() == ["UNKNOWN"]
        assert "no emitter has reported anything since" in emitters.verdict
        url = f"http://127.0.0.1:{cluster.metrics_port}/metrics"
        page = httpx.get(url, trust_env=False, timeout=30).text
        (line,) = [one for one in page.splitlines() if one.startswith("tidemark_emitter_silent{")]
        assert f'broker="{broker}"' in line
        assert line.endswith(" 1")

        eventually(lambda: "PipelineLate" in cluster.firing(), within_s=240)
        late = cluster.firing()["PipelineLate"]["annotations"]
        assert late["summary"].startswith("no emitter reports anything")
        assert "BrokerSilent" in cluster.firing(), "it is not muted by what it explains"
