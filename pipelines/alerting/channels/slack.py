"""Pure functions that encode notices for Slack webhooks as blocks and fallback text.

All that is somebody else's is in objects of type plain_text, where nothing is markup; the fallback
text is mrkdwn, so it is escaped, and mrkdwn is switched off besides. A message that is sent twice
is shown twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from pipelines.alerting.alerts import Alert, Notice
from pipelines.alerting.channels.http_request import HttpRequest, json_bytes
from pipelines.alerting.channels.notice_text import (
    facts_of,
    headline_of,
    left_out,
    links_of,
    one_line,
    shortened,
    title_of,
    worst_first,
)
from pipelines.base.secrets import Secret

HEADER_CHARS_MAX: Final = 150
FIELD_CHARS_MAX: Final = 2_000
FIELDS_MAX: Final = 10
TEXT_CHARS_MAX: Final = 3_000
BLOCKS_MAX: Final = 50
ALERTS_MAX: Final = 10
"""More are counted: Slack takes fifty blocks, and nobody reads them."""

_BLOCKS_PER_ALERT: Final = 3
assert ALERTS_MAX * _BLOCKS_PER_ALERT + 2 <= BLOCKS_MAX, "header, alerts, context"


@dataclass(frozen=True, slots=True)
class SlackSettings:
    """Where to post."""

    url: Secret


def message(notice: Notice, settings: SlackSettings) -> HttpRequest:
    """What is posted to the webhook."""
    shown = worst_first(notice.alerts)[:ALERTS_MAX]
    title = title_of(notice, HEADER_CHARS_MAX)
    lines = [title_of(notice, 1_000), *(headline_of(alert, 300) for alert in shown)]
    blocks: list[dict[str, Any]] = [{"type": "header", "text": _plain(title, HEADER_CHARS_MAX)}]
    for alert in shown:
        blocks += _blocks(alert)
    about = [f"{name}={value}" for name, value in sorted(notice.group_labels.items())]
    if more := left_out(notice, len(shown)):
        about.insert(0, f"and {more:,} more")
    if about:
        context = _plain(", ".join(about), FIELD_CHARS_MAX)
        blocks.append({"type": "context", "elements": [context]})
    context = {"text": escaped("\n".join(lines), TEXT_CHARS_MAX), "mrkdwn": False, "blocks": blocks}
    return HttpRequest(settings.url, json_bytes(context))


def escaped(text: str, chars_max: int) -> str:
    """As mrkdwn without mentions and links: `&`, `<` and `>` are all that begins one."""
    # Shortened before: an entity that is cut in two would be shown.
    text = shortened(text, chars_max // 5)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _blocks(alert: Alert) -> list[dict[str, Any]]:
    fields = [
        _plain(f"{name}: {value}", FIELD_CHARS_MAX)
        for name, value in islice(facts_of(alert, FIELD_CHARS_MAX), FIELDS_MAX)
    ]
    blocks: list[dict[str, Any]] = [
        {"type": "section", "text": _plain(headline_of(alert, 1_000), TEXT_CHARS_MAX)},
        {"type": "section", "fields": fields},
    ]
    if links := links_of(alert):
        buttons = [{"type": "button", "text": _plain(name, 75), "url": url} for name, url in links]
        blocks.append({"type": "actions", "elements": buttons})
    return blocks


def _plain(text: str, chars_max: int) -> dict[str, Any]:
    return {
        "type": "plain_text",
        "text": one_line(text, chars_max) or " ",
        "emoji": False,
    }
