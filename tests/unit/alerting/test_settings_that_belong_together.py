"""Settings of receivers and routes that only make sense together."""

from __future__ import annotations

import pytest

from engine.foundation.errors import ConfigError
from pipelines.alerting.channels.receivers import receivers_of
from pipelines.alerting.telling import routing_in

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


def read(valid_for_s: int, pause: str = "4h", receiver: str = "am") -> None:
    text = RECEIVER.format(valid_for_s=valid_for_s, pause=pause, receiver=receiver)
    routing_in("receivers.toml", receivers_of(text, "receivers.toml"))


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
