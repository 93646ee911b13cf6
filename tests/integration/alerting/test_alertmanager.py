"""A real Alertmanager takes what we push: it shows it, knows it again, resolves it, and hands it on
by its own webhook in the shape of ours.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from demo.ports import free_port_block
from pipelines.alerting.alerts import Alert, Notice, State
from pipelines.alerting.channels.opening import channels_of
from pipelines.alerting.channels.receivers import receivers_of
from pipelines.alerting.channels.webhook import WebhookSettings, webhook
from pipelines.alerting.outbox.courier import tried
from pipelines.alerting.outbox.outcomes import Delivered, Outcome
from pipelines.base.secrets import Secret
from provision import servers
from tests.integration.alerting.receiving_server import Ledger, receiving
from tests.integration.alerting.stores import SECOND_US, a_notice, an_alert
from tests.integration.client.database_servers import DIES_WITH_THE_TESTS

CONFIG = """
route:
  receiver: us
  group_by: [group]
  group_wait: 0s
  group_interval: 1s
receivers:
  - name: us
    webhook_configs:
      - url: {url}
        send_resolved: true
"""


@contextmanager
def alertmanager(hook: str) -> Iterator[str]:
    """A running Alertmanager that notifies `hook`; its address."""
    program = servers.alertmanager()
    assert program is not None, servers.ALERTMANAGER_MISSING
    folder = Path(tempfile.mkdtemp(prefix="tidemark-alertmanager-"))
    config = folder / "alertmanager.yml"
    config.write_text(CONFIG.format(url=hook))
    address = f"127.0.0.1:{free_port_block(1)}"
    command = [*DIES_WITH_THE_TESTS, str(program), f"--config.file={config}"]
    command += [f"--storage.path={folder / 'data'}", f"--web.listen-address={address}"]
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--cluster.listen-address="], stdout=out, stderr=subprocess.STDOUT
        )
    try:
        ready = f"http://{address}/-/ready"
        eventually(lambda: _answers(ready) or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).is_success
    except httpx.TransportError:
        return False


def eventually(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


@pytest.fixture(scope="module")
def hook() -> Iterator[Ledger]:
    with receiving() as ledger:
        yield ledger


@pytest.fixture(scope="module")
def address(hook: Ledger) -> Iterator[str]:
    with alertmanager(f"{hook.url}/hook") as running:
        yield running


def pushed(address: str, notice: Notice) -> Outcome:
    text = (
        'allow_private_hosts = ["127.0.0.1"]\n[[receivers]]\nname = "am"\n'
        f'kind = "alertmanager"\nurl = "{address}"\n'
    )
    with ThreadPoolExecutor(1) as threads:
        (channel,) = channels_of(receivers_of(text, "a test"), {}, threads).values()
        return asyncio.run(tried(channel, notice))


def shown(address: str, group: str) -> list[Any]:
    """The active alerts of a group."""
    answer = httpx.get(
        f"{address}/api/v2/alerts", params={"filter": f'group="{group}"'}, trust_env=False
    )
    return list(answer.raise_for_status().json())


def of_group(group: str, **changed: Any) -> Alert:
    now_us = time.time_ns() // 1_000
    labels = {"group": group, "topic": "orders"}
    return an_alert(
        fingerprint=group, labels=labels, active_at_us=now_us - 60 * SECOND_US, **changed
    )


def notice_now(*alerts: Alert) -> Notice:
    return a_notice(alerts=alerts, created_us=time.time_ns() // 1_000)


def test_alerts_are_shown_once_and_resolved(address: str, hook: Ledger) -> None:
    alert = of_group("payments", annotations={"summary": "stands still", "page_url": "https://t/g"})
    for _ in range(2):
        assert pushed(address, notice_now(alert)) == Delivered()

    (there,) = shown(address, "payments")
    assert there["labels"] == {
        "alertname": "StalledWindow",
        "severity": "critical",
        "group": "payments",
        "topic": "orders",
    }
    assert there["annotations"] == {
        "summary": "stands still",
        "page_url": "https://t/g",
        "owner": "payments-team",
        "figures": "head=unknown, messages=57, time_lag_s=12.5",
    }
    assert there["generatorURL"] == "https://t/g"
    hours_s = 9 * 3_600
    ends_s = seconds_of(there["endsAt"])
    assert hours_s - 120 < ends_s - time.time() <= hours_s

    over = of_group("payments", state=State.RESOLVED, resolved_at_us=time.time_ns() // 1_000)
    assert pushed(address, notice_now(over)) == Delivered()

    assert shown(address, "payments") == []
    eventually(lambda: any(sent["status"] == "resolved" for sent in handed_on(hook, "payments")))


def handed_on(hook: Ledger, group: str) -> list[Any]:
    """What Alertmanager sent its own webhook about a group."""
    decoded = [received.decoded for received in list(hook.received)]
    return [one for one in decoded if one["groupLabels"].get("group") == group]


def seconds_of(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_our_webhook_has_the_shape_of_alertmanagers(address: str, hook: Ledger) -> None:
    notice = notice_now(of_group("shipping", annotations={"page_url": "https://t/g"}))
    assert pushed(address, notice) == Delivered()
    eventually(lambda: bool(handed_on(hook, "shipping")))

    theirs = handed_on(hook, "shipping")[0]
    settings = WebhookSettings(Secret("https://x/", "a test"), None, "https://t")
    sent = json.loads(webhook(notice, settings).body)
    assert shape(sent) == shape(theirs)
    assert sent["alerts"][0]["labels"] == theirs["alerts"][0]["labels"]
    assert sent["version"] == theirs["version"] == "4"


def shape(given: Any) -> Any:
    """Names and kinds, with alerts by the first of them; labels and annotations are maps."""
    if isinstance(given, dict):
        return {
            name: "map" if name.endswith(("abels", "nnotations")) else shape(value)
            for name, value in given.items()
        }
    if isinstance(given, list):
        return [shape(given[0])]
    return type(given).__name__


def test_hostile_names_are_taken(address: str) -> None:
    hostile = {"a-b": "1", "9": "2", "größe": "\x00\ud800\n<b>", "empty": "", "a_b": "3"}
    alert = of_group("hostile", annotations=hostile)
    labels = {**alert.labels, **hostile}
    assert pushed(address, notice_now(an_alert(labels=labels))) == Delivered()

    (there,) = shown(address, "hostile")
    assert there["labels"]["a_b"] == "1"
    assert there["labels"]["_9"] == "2"
    assert "<b>" in there["labels"]["gr__e"]


def test_thousands_of_alerts_are_one_request(address: str) -> None:
    many = [an_alert(labels={"group": "crowd", "queue": str(at)}) for at in range(5_000)]
    assert pushed(address, notice_now(*many)) == Delivered()
    assert len(shown(address, "crowd")) == 5_000
