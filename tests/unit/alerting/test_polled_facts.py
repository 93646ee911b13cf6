"""Alerts about a cluster that is watched from outside say so, and how far they may be off, whoever
is notified of them and by whatever channel."""

from __future__ import annotations

from datetime import datetime
from email.message import EmailMessage

import pytest

from pipelines.alerting.alert_context import PolledFacts
from pipelines.alerting.alert_queries import ShownAlert
from pipelines.alerting.alerts import OBSERVED, Alert
from pipelines.alerting.channels import alertmanager, mail, others, pagerduty, slack, webhook
from pipelines.alerting.evaluating import Looked
from pipelines.alerting.routing import Route, Routing
from pipelines.alerting.step import Known, judge, notify
from pipelines.alerting.terminal import alert_in_words
from pipelines.base.secrets import Secret
from pipelines.reading.moment import Reached
from tests.alert_stories import NOON, NOON_US, behind, rows, rule
from tests.integration.alerting.stores import a_notice, an_alert

SAID = "watched from outside each 10 s: times are right to ± 10 s"
IN_MESSAGES = ", numbers of messages to ± 1,200"
URL = Secret("https://example", "test")


def reached(*emitters: str, each_ms: int = 10_000, at: datetime = NOON) -> tuple[Reached, ...]:
    return tuple(Reached(one, at, 1, report_each_ms=each_ms) for one in emitters)


def judged(known: Known, emitter: str, lag_s: float, after_s: int = 0) -> Known:
    now_us = NOON_US + after_s * 1_000_000
    broker = emitter.split("/")[1]
    frame = rows("group_state", behind(lag_s, emitter=emitter, broker=broker))
    looked = Looked(now_us, {"group_state": frame}, reached=reached("c/b/eye", "c/own/0"))
    return judge(known, [rule()], looked, now_us=now_us).known


def test_an_alert_about_an_observed_broker_says_so_until_it_is_over() -> None:
    first = judged(Known(), "c/b/eye", 90)
    assert first.alerts[0].annotations[OBSERVED] == SAID
    later = judged(first, "c/b/eye", 95, 5)
    assert later.alerts[0].annotations[OBSERVED] == SAID
    over = judged(later, "c/b/eye", 0, 10)
    assert over.alerts[0].resolved_at_us is not None
    assert over.alerts[0].annotations[OBSERVED] == SAID


def test_a_notice_has_what_was_said_beside_the_texts_of_its_rule() -> None:
    frame = rows("group_state", behind(90, emitter="c/b/eye"))
    looked = Looked(NOON_US, {"group_state": frame}, reached=reached("c/b/eye"))
    found = judge(Known(), [rule()], looked, now_us=NOON_US)
    routing = Routing(Route("team", group_wait_us=0))
    (notice,) = notify(found, [rule()], routing, silences=(), now_us=NOON_US).notices
    texts = notice.alerts[0].annotations
    assert (texts["summary"], texts[OBSERVED]) == ("orders", SAID)


def test_an_alert_about_a_broker_that_reports_itself_says_nothing_of_it() -> None:
    known = judged(Known(), "c/own/0", 90)
    assert OBSERVED not in known.alerts[0].annotations
    assert OBSERVED not in judged(known, "c/own/0", 95, 5).alerts[0].annotations


@pytest.mark.parametrize(
    ("labels", "figures", "said"),
    [
        ({"cluster": "c", "broker": "b"}, {}, SAID),
        ({"cluster": "c", "broker": "b"}, {"error_messages": 1_200}, f"{SAID}{IN_MESSAGES}"),
        ({"cluster": "c", "broker": "own"}, {}, ""),
        ({"cluster": "far"}, {"error_messages": None}, SAID),
        ({"cluster": "c"}, {}, ""),
        ({"cluster": "c"}, {"emitter": "c/b/eye"}, SAID),
        ({"emitter": "c/b/eye"}, {}, SAID),
        ({"job": "lag-report"}, {}, ""),
        ({"cluster": "unheard-of"}, {}, ""),
    ],
)  # fmt: skip
def test_it_is_said_where_all_that_an_alert_may_be_about_is_polled(
    labels: dict[str, str], figures: dict[str, int | str | None], said: str
) -> None:
    polled = PolledFacts(reached("c/b/eye", "c/own/0", "far/b/eye", "far/b2/eye"))
    assert polled.said_of(labels, figures) == said


def watched_alert() -> Alert:
    texts = {"summary": "payments stands", "evidence": "57 wait.", OBSERVED: SAID}
    return an_alert(annotations=texts)


def in_mail(message: EmailMessage) -> list[str]:
    return [part.get_content() for part in message.walk() if not part.is_multipart()]


def test_every_channel_shows_it() -> None:
    notice = a_notice(alerts=(watched_alert(),))
    sent = {
        "alertmanager": alertmanager.pushed(
            notice, alertmanager.AlertmanagerSettings(URL, None, 300)
        ).body.decode(),
        "webhook": webhook.webhook(notice, webhook.WebhookSettings(URL, None, "")).body.decode(),
        "slack": slack.message(notice, slack.SlackSettings(URL)).body.decode(),
        "pagerduty": pagerduty.event(
            notice, pagerduty.PagerDutySettings(URL, URL, "")
        ).body.decode(),
        "apprise": others.title_and_text(notice)[1],
    }
    text, html = in_mail(mail.mail(notice, mail.MailSettings("t@example", ("a@example",))))
    for name, shown in {**sent, "mail": text, "mail page": html}.items():
        assert "watched from outside each 10 s" in shown, name


def test_a_terminal_shows_it_beside_the_evidence() -> None:
    lines = list(alert_in_words(ShownAlert(watched_alert(), None, (), None), NOON_US))
    at = next(number for number, line in enumerate(lines) if line.startswith("  evidence"))
    assert lines[at + 1] == f"  observed    {SAID}"
