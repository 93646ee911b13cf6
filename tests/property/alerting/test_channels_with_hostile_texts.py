"""Whatever is in a label, it stays text: in Slack, HTML, mail headers and JSON."""

from __future__ import annotations

import json
import re
from email import message_from_bytes
from email.policy import SMTP
from html.parser import HTMLParser
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.alerting.alerts import Notice, State
from pipelines.alerting.channels import alertmanager, mail, others, pagerduty, slack, webhook
from pipelines.alerting.channels.notice_text import is_web_address, one_line
from pipelines.alerting.store.changes import alert_of, alert_text, notice_of, notice_text
from pipelines.base.secrets import Secret
from tests.integration.alerting.stores import NOW_US, a_notice, an_alert

PIECES = (
    "<!channel>",
    "<https://evil.example|click>",
    "<script>alert(1)</script>",
    "' onmouseover='x",
    '"><img src=x onerror=y>',
    "\r\nBcc: evil@example.com\r\n\r\n",
    "&amp;",
    "*bold* _it_ `code` ~no~ @here :skull:",
    "\x00\x1b[31m",
    "\u202e\u2028\ud800",
    "javascript:alert(1)",
    "https://ok.example/page?a=1",
    "=?utf-8?q?=0D=0ABcc:_x?=",
    "}{",
    "@everyone <@123> <@&7> <#9> <!here>",
    "__u__ ~~s~~ ||spoiler|| [click](https://evil.example) [a]: b",
    "# head\n> quote",
)
texts = st.one_of(
    st.sampled_from(PIECES),
    st.text(max_size=8),
    st.sampled_from(["x" * 5_000, "<&>" * 2_000]),
    st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
)
moments = st.integers(-(2**62), 2**62)
figures = st.one_of(st.none(), st.floats(), st.integers(), texts)
alerts = st.builds(
    an_alert,
    rule=texts,
    severity=st.one_of(texts, st.sampled_from(["critical", "page", "info"])),
    owner=texts,
    labels=st.dictionaries(texts, texts, max_size=4),
    annotations=st.dictionaries(
        st.one_of(
            texts,
            st.sampled_from(["summary", "evidence", "page_url", "notebook_url", "runbook_url"]),
        ),
        texts,
        max_size=4,
    ),
    figures=st.dictionaries(texts, figures, max_size=3),
    state=st.sampled_from(State),
    reason=texts,
    active_at_us=moments,
    resolved_at_us=st.one_of(st.none(), moments),
)
hostile = st.builds(
    a_notice,
    notice_id=texts,
    receiver=st.just("on-call"),
    group_key=texts,
    group_labels=st.dictionaries(texts, texts, max_size=3),
    alerts=st.lists(alerts, max_size=4).map(tuple),
    truncated_alerts=st.integers(0, 10_000),
    created_us=st.integers(0, 4_000_000_000_000_000),
)

ENCODED_BREAK = "=?utf-8?q?=0D=0ABcc:_x?="
URL = Secret("https://hooks.example/services/canary", "a test")
BIDI = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")


def strings(value: Any) -> list[str]:
    """Every text inside."""
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in strings(part)]
    if isinstance(value, list):
        return [text for part in value for text in strings(part)]
    return [value] if isinstance(value, str) else []


def sound(value: Any) -> bool:
    """Can every reader of JSON read every text?"""
    return all(text.encode("utf-8") is not None for text in strings(value))


@settings(max_examples=40)
@given(hostile)
def test_slack_is_given_no_mention_no_link_and_no_more_than_it_takes(notice: Notice) -> None:
    sent = json.loads(slack.message(notice, slack.SlackSettings(URL)).body)

    assert sound(sent)
    assert not set(sent["text"]) & set("<>")
    assert sent["mrkdwn"] is False
    assert len(sent["text"]) <= slack.TEXT_CHARS_MAX
    assert 1 <= len(sent["blocks"]) <= slack.BLOCKS_MAX
    for block in sent["blocks"]:
        assert block["type"] in {"header", "section", "context", "actions"}
        shown = [block.get("text"), *block.get("fields", []), *block.get("elements", [])]
        for part in filter(None, shown):
            words = part["text"] if part["type"] == "button" else part
            assert words["type"] == "plain_text"
            assert words["emoji"] is False
            assert 1 <= len(words["text"]) <= 3_000
            assert not BIDI & set(words["text"])
            assert part["type"] != "button" or is_web_address(part["url"])
        assert 1 <= len(block.get("fields", "x")) <= slack.FIELDS_MAX
    assert len(sent["blocks"][0]["text"]["text"]) <= slack.HEADER_CHARS_MAX


class Tags(HTMLParser):
    """Tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@settings(max_examples=40)
@given(hostile)
@example(a_notice(group_labels={"a": "\r\nBcc: evil@example.com"}))
@example(a_notice(group_labels={"a": "=?utf-8?q?=0D=0ABcc:_x?="}))
@example(a_notice(group_labels={"a": f"={ENCODED_BREAK}'x {ENCODED_BREAK}=?"}))
def test_a_mail_has_the_headers_and_the_tags_that_we_wrote(notice: Notice) -> None:
    chosen = mail.MailSettings("tidemark@shop.example", ("a@shop.example", "b@shop.example"))
    data = mail.mail(notice, chosen).as_bytes()

    found = message_from_bytes(data, policy=SMTP)
    assert set(found.keys()) - {"In-Reply-To", "References"} == {
        *("From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted"),
        *("MIME-Version", "Content-Type"),
    }
    assert found["To"] == "a@shop.example, b@shop.example"
    assert len(found.keys()) == len(set(found.keys()))
    text, page = found.iter_parts()
    assert (text.get_content_type(), page.get_content_type()) == ("text/plain", "text/html")
    tags = Tags()
    tags.feed(page.get_content())
    assert {tag for tag, _ in tags.tags} <= {
        *("html", "body", "h2", "h3", "table", "tr", "th", "td", "p", "a")
    }
    for tag, attributes in tags.tags:
        assert set(attributes) <= {"href", "align", "valign"}
        if tag == "a":
            assert is_web_address(attributes["href"] or "")
    assert not BIDI & set(text.get_content())


@settings(max_examples=40)
@given(hostile)
def test_pagerduty_is_given_no_more_than_it_takes(notice: Notice) -> None:
    chosen = pagerduty.PagerDutySettings(URL, Secret("routing-canary", "a test"), "")
    request = pagerduty.event(notice, chosen)
    sent = json.loads(request.body)

    assert sound(sent)
    assert sent["event_action"] == ("trigger" if notice.is_firing else "resolve")
    assert 1 <= len(sent["dedup_key"]) <= 255
    assert sent["payload"]["severity"] in {"critical", "error", "warning", "info"}
    assert 1 <= len(sent["payload"]["summary"]) <= 1_024
    assert len(request.body) < 512 * 1024
    assert "canary" not in repr(request)


@settings(max_examples=40)
@given(hostile)
def test_an_alertmanager_is_given_names_and_moments_that_it_takes(notice: Notice) -> None:
    chosen = alertmanager.AlertmanagerSettings(URL, None, 3_600)
    sent = json.loads(alertmanager.pushed(notice, chosen).body)

    assert sound(sent)
    assert len(sent) == len(notice.alerts)
    for posted, alert in zip(sent, notice.alerts, strict=True):
        for name, value in [*posted["labels"].items(), *posted["annotations"].items()]:
            assert name.isascii()
            assert name.isidentifier()
            assert value
        assert posted["startsAt"] < posted["endsAt"]
        if alert.state is State.RESOLVED and notice.created_us > 0:
            assert min(alert.active_at_us, notice.created_us) <= notice.created_us


@settings(max_examples=40)
@given(hostile)
def test_a_webhook_sends_the_texts_themselves_inside_json(notice: Notice) -> None:
    chosen = webhook.WebhookSettings(URL, None, "https://tidemark.example")
    request = webhook.webhook(notice, chosen)
    sent = json.loads(request.body)

    assert sound(sent)
    assert request.headers["Idempotency-Key"].replace("_", "a").isalnum() or not notice.notice_id
    assert request.headers["Idempotency-Key"].isascii()
    for listed, alert in zip(sent["alerts"], notice.alerts, strict=True):
        for name, value in alert.labels.items():
            plain = name.encode("utf-8", "replace").decode()
            assert plain in listed["labels"] or len(alert.labels) != len(listed["labels"])
            assert value.encode("utf-8", "replace").decode() in listed["labels"].values()


@settings(max_examples=40)
@given(hostile)
def test_other_services_are_given_bounded_text(notice: Notice) -> None:
    title, text = others.title_and_text(notice)
    assert len(title) <= others.TITLE_CHARS_MAX
    assert len(text) <= others.BODY_CHARS_MAX
    assert "\n" not in title
    allowed = {"\n", others.BREAK}
    assert all(char.isprintable() or char in allowed for char in text)


CALLS = re.compile(
    r"@[\w-]|<[@!#&/:a-zA-Z]|[*`][^\u200b]|(?<!\w)_[^\u200b]|__|~~|\|\||\][(\[:]|^\s*(?:[#>]|\d+[.)])",
    re.MULTILINE,
)
"""What begins a mention, a tag, a link or markup, where a service reads it."""


@settings(max_examples=60)
@given(hostile)
@example(a_notice(group_labels={"group": "@everyone <@123>"}))
@example(a_notice(alerts=(an_alert(annotations={"summary": "# head"}),)))
def test_other_services_read_no_mention_no_tag_and_no_markup(notice: Notice) -> None:
    title, text = others.title_and_text(notice)
    assert not CALLS.search(title), title
    assert not CALLS.search(text), text


def test_names_and_our_own_links_stay_as_they_are() -> None:
    usual = "%RETRY%shop_orders queue 3 of broker-a: 12:03:41, 5 < 7, a=1|b (see c)"
    assert others.inert(usual) == usual
    page = "https://ok.example/group/a_b?from=1"
    (_, text) = others.title_and_text(a_notice(alerts=(an_alert(annotations={"page_url": page}),)))
    assert f"Page: {page}" in text


@settings(max_examples=40)
@given(hostile)
def test_what_is_stored_is_read_back(notice: Notice) -> None:
    again = notice_of(notice_text(notice))
    assert repr(again) == repr(notice)
    for alert in notice.alerts:
        assert repr(alert_of(alert_text(alert))) == repr(alert)


@given(texts, st.integers(1, 50))
def test_one_line_is_one_line(text: str, chars_max: int) -> None:
    line = one_line(text, chars_max)
    assert line.isprintable()
    assert len(line) <= chars_max
    assert one_line(line, chars_max) == line


def test_a_mail_of_the_same_notice_is_the_same_mail_and_threads_by_alert() -> None:
    chosen = mail.MailSettings("tidemark@shop.example", ("a@shop.example",))
    first = mail.mail(a_notice("n1"), chosen)
    again = mail.mail(a_notice("n1", created_us=NOW_US + 1), chosen)
    later = mail.mail(a_notice("n2"), chosen)

    assert first["Message-ID"] == again["Message-ID"]
    assert first["Message-ID"] != later["Message-ID"]
    assert first["References"] == later["References"] == first["In-Reply-To"]
    assert first["Message-ID"] not in first["References"]
