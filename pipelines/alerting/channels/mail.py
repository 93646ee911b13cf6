"""Encodes a notice as a mail: text and HTML, in one thread per alert. Pure.

Its Message-ID is made of the notice, so a second copy is the same mail for servers and readers that
look; it refers to an id of each alert that it names, which no mail ever had, and by which readers
put all mails about that alert into one thread.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from email.message import EmailMessage
from email.policy import SMTP
from html import escape
from typing import Final

from pipelines.alerting.alerts import Alert, Notice
from pipelines.alerting.channels.notice_text import (
    EPOCH,
    facts_of,
    headline_of,
    left_out,
    links_of,
    title_of,
    worst_first,
)

SUBJECT_CHARS_MAX: Final = 200
TEXT_CHARS_MAX: Final = 2_000
ALERTS_MAX: Final = 50
REFERENCES_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class MailSettings:
    """The sender and the recipients."""

    sender: str
    recipients: tuple[str, ...]


def mail(
    notice: Notice, settings: MailSettings, *, page: tuple[str, bytes] | None = None
) -> EmailMessage:
    """The mail that sends a notice. page: name and bytes of an HTML file that goes with it."""
    message = EmailMessage(policy=SMTP)
    domain = settings.sender.rpartition("@")[2]
    shown = worst_first(notice.alerts)[:ALERTS_MAX]
    message["From"] = settings.sender
    message["To"] = ", ".join(settings.recipients)
    message["Subject"] = _subject(title_of(notice, SUBJECT_CHARS_MAX))
    message["Date"] = EPOCH + timedelta(microseconds=notice.created_us // 1_000_000 * 1_000_000)
    message["Message-ID"] = f"<{_digest(notice.notice_id)}.{_digest(notice.receiver)}@{domain}>"
    if threads := [thread_of(alert, domain) for alert in shown[:REFERENCES_MAX]]:
        message["In-Reply-To"] = threads[0]
        message["References"] = " ".join(threads)
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(_sound(_text(notice, shown)))
    message.add_alternative(_sound(_html(notice, shown)), subtype="html")
    if page is not None:
        message.add_attachment(page[1], maintype="text", subtype="html", filename=page[0])
    return message


def thread_of(alert: Alert, domain: str) -> str:
    """The id to which all mails about an alert refer."""
    return f"<alert.{_digest(alert.fingerprint)}@{domain}>"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _sound(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _subject(title: str) -> str:
    """A title as a header takes it. What looks like an encoded word would be decoded when it is
    set, line breaks in it with the rest: a name could add headers of its own."""
    return _sound(title).replace("=?", "= ?")


def _text(notice: Notice, shown: list[Alert]) -> str:
    lines = [title_of(notice, TEXT_CHARS_MAX), ""]
    for alert in shown:
        lines.append(headline_of(alert, TEXT_CHARS_MAX))
        lines += [f"  {name}: {value}" for name, value in facts_of(alert, TEXT_CHARS_MAX)]
        lines += [f"  {name}: {url}" for name, url in links_of(alert)]
        lines.append("")
    if more := left_out(notice, len(shown)):
        lines.append(f"and {more:,} more")
    return "\n".join(lines) + "\n"


def _html(notice: Notice, shown: list[Alert]) -> str:
    parts = [f"<h2>{escape(title_of(notice, TEXT_CHARS_MAX))}</h2>"]
    for alert in shown:
        rows = "".join(
            f"<tr><th align='left' valign='top'>{escape(name)}</th><td>{escape(value)}</td></tr>\n"
            for name, value in facts_of(alert, TEXT_CHARS_MAX)
        )
        links = " · ".join(
            f"<a href='{escape(url)}'>{escape(name)}</a>" for name, url in links_of(alert)
        )
        parts.append(f"<h3>{escape(headline_of(alert, TEXT_CHARS_MAX))}</h3>")
        parts.append(f"<table>\n{rows}</table>\n<p>{links}</p>")
    if more := left_out(notice, len(shown)):
        parts.append(f"<p>and {more:,} more</p>")
    body = "\n".join(parts)
    return f"<!DOCTYPE html>\n<html><body>\n{body}\n</body></html>\n"
