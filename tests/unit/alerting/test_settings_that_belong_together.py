"""Settings of receivers and routes that only make sense together."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.foundation.errors import ConfigError
from pipelines.alerting.channels.receivers import receivers_of
from pipelines.alerting.notification_settings import TellingFile, routing_in
from pipelines.alerting.routing import Routing

RECEIVER = """
[[receivers]]
name = "am"
kind = "alertmanager"
url = "https://alertmanager.internal"
valid_for_s = {valid_for_s}
[[receivers]]
name = "mail"
kind = "webhook"
url = "https://hooks.internal"
[routing]
receiver = "am"
[[routing.route]]
receiver = "{receiver}"
matchers = ['severity="page"']
repeat_interval = "{pause}"
"""


def read(valid_for_s: int, pause: str = "4h", receiver: str = "am") -> Routing:
    text = RECEIVER.format(valid_for_s=valid_for_s, pause=pause, receiver=receiver)
    return routing_in("receivers.toml", receivers_of(text, "receivers.toml"))


def test_alerts_hold_longer_at_alertmanager_than_two_pauses_between_notices() -> None:
    read(9 * 3600)
    read(13 * 3600, "6h")
    read(9 * 3600, "6h", "mail")


@pytest.mark.parametrize(("valid_for_s", "pause"), [(8 * 3600, "4h"), (9 * 3600, "5h")])
def test_alerts_that_would_end_between_two_notices_are_refused(
    valid_for_s: int, pause: str
) -> None:
    with pytest.raises(
        ConfigError, match=r"more than .* twice the repeat_interval of a route to am"
    ):
        read(valid_for_s, pause)


def test_alertmanager_gets_all_alerts_of_a_group_and_people_some() -> None:
    routing = read(9 * 3600, receiver="mail")
    assert routing.otherwise.alerts_max == 10_000
    assert [route.alerts_max for route in routing.routes] == [50]


def test_a_secret_that_somebody_changed_in_its_file_is_read_again(tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text("https://hooks.internal/first")
    named = f'[[receivers]]\nname = "a"\nkind = "slack"\nurl_file = "{secret}"\n'
    file = tmp_path / "receivers.toml"
    file.write_text('allow_private_hosts = ["hooks.internal"]\n' + named)
    with ThreadPoolExecutor(1) as threads:
        settings_file = TellingFile(file, {}, threads)
        settings_file.read()
    assert set(settings_file.files) == {file, secret}
