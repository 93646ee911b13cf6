"""Encodes notices as text and HTML email, threaded by alert, and sends them by SMTP.

The server is at a checked address, with TLS unless that is switched off. One that answered the end
of the mail has it; when the connection breaks before, nobody knows.
"""

from __future__ import annotations

import asyncio
import hashlib
import smtplib
import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from email.message import EmailMessage
from email.policy import SMTP
from enum import StrEnum
from html import escape
from pathlib import Path
from typing import Final

from engine.foundation.errors import ConfigError, ConnectFailed
from pipelines.alerting.alerts import Alert, Notice
from pipelines.alerting.channels.http_request import ANSWER_CHARS_MAX
from pipelines.alerting.channels.notice_text import (
    EPOCH,
    facts_of,
    headline_of,
    left_out,
    links_of,
    one_line,
    title_of,
    worst_first,
)
from pipelines.alerting.outbox.outcomes import Delivered, Failed, Outcome, Trouble
from pipelines.base.outgoing_addresses import Hosts, look_up
from pipelines.base.secrets import Secret, without_secrets

SUBJECT_CHARS_MAX: Final = 200
TEXT_CHARS_MAX: Final = 2_000
ALERTS_MAX: Final = 50
REFERENCES_MAX: Final = 20
ATTACHMENT_BYTES_MAX: Final = 5 * 1024 * 1024
"""Mail servers take some ten megabytes, after base64 has made a third more of them."""


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


class Tls(StrEnum):
    """How the connection is made safe."""

    STARTTLS = "starttls"
    IMPLICIT = "implicit"
    NONE = "none"
    """Not at all: for a relay on the same machine."""


@dataclass(frozen=True, slots=True)
class MailServer:
    """The server that mails are sent by."""

    host: str
    port: int
    tls: Tls
    user: str | None
    password: Secret | None


class MailChannel:
    """One receiver that is notified by mail."""

    def __init__(
        self,
        server: MailServer,
        settings: MailSettings,
        hosts: Hosts,
        *,
        timeout_s: float,
        threads: Executor,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self.timeout_s: Final = timeout_s
        self._server = server
        self._settings = settings
        self._hosts = hosts
        self._threads = threads
        self._trust = trust or ssl.create_default_context()
        hosts.check(server.host)

    async def send(self, notice: Notice) -> Outcome:
        """Tell the receiver once; when time is up, its connection is closed."""
        connection = _Connection(self._server, self._trust, self.timeout_s)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self._handed, notice, connection)
        finally:
            connection.cut()

    def _handed(self, notice: Notice, connection: _Connection) -> Outcome:
        page, lacking = _attached(notice.attachment)
        message = mail(notice, self._settings, page=page)
        try:
            found = look_up(self._server.host, self._server.port)
            connection.open(self._hosts.checked(self._server.host, found))
            refused = connection.hand(message, self._settings)
        except ConfigError as error:
            return Failed(Trouble.NOT_SET_UP, str(error))
        except ConnectFailed as error:
            return Failed(Trouble.UNREACHABLE, str(error))
        except (smtplib.SMTPException, OSError) as error:
            return self._failed(error)
        finally:
            connection.cut()
        notes = [f"not to {', '.join(refused)}"] if refused else []
        return Delivered("; ".join([*notes, *([lacking] if lacking else [])]))

    def _failed(self, error: Exception) -> Failed:
        text = f"{self._server.host}: {self._why(error)}"
        if isinstance(error, smtplib.SMTPAuthenticationError | smtplib.SMTPNotSupportedError):
            return Failed(Trouble.NOT_SET_UP, text)
        if isinstance(error, ssl.SSLError):
            return Failed(Trouble.NOT_SET_UP, text)
        if isinstance(error, smtplib.SMTPRecipientsRefused):
            is_final = all(code >= 500 for code, _ in error.recipients.values())
            return Failed(Trouble.NOT_SET_UP if is_final else Trouble.UNREACHABLE, text)
        if isinstance(error, smtplib.SMTPSenderRefused) and error.smtp_code >= 500:
            return Failed(Trouble.NOT_SET_UP, text)
        if isinstance(error, smtplib.SMTPDataError) and error.smtp_code >= 500:
            return Failed(Trouble.REFUSED, text)
        return Failed(Trouble.UNREACHABLE, text)

    def _why(self, error: Exception) -> str:
        kind = type(error).__name__
        if isinstance(error, smtplib.SMTPRecipientsRefused):
            codes = sorted({code for code, _ in error.recipients.values()})
            return f"no recipient is taken ({', '.join(map(str, codes))})"
        if isinstance(error, smtplib.SMTPResponseException):
            raw = error.smtp_error
            said = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)
            plain = without_secrets(said, [self._server.password])
            return f"{error.smtp_code} {one_line(plain, ANSWER_CHARS_MAX)}"
        if isinstance(error, OSError) and error.strerror:
            return f"{kind}: {one_line(error.strerror, ANSWER_CHARS_MAX)}"
        return kind


def _attached(path: str) -> tuple[tuple[str, bytes] | None, str]:
    """Name and bytes of the file that goes with a mail; or why none does."""
    if not path:
        return None, ""
    try:
        with Path(path).open("rb") as opened:
            data = opened.read(ATTACHMENT_BYTES_MAX + 1)
    except OSError as error:
        return None, f"without {path} ({error.strerror})"
    if len(data) > ATTACHMENT_BYTES_MAX:
        return None, f"without {path}: it has more than {ATTACHMENT_BYTES_MAX:,} bytes"
    return (Path(path).name, data), ""


class _Connection:
    """One conversation with a mail server, which another thread may cut."""

    def __init__(self, server: MailServer, trust: ssl.SSLContext, timeout_s: float) -> None:
        self._server = server
        self._trust = trust
        self._timeout_s = timeout_s
        self._smtp: _AtAddress | None = None
        self._is_cut = False

    def open(self, addresses: Sequence[str]) -> None:
        """Connect to the first that answers, make the connection safe, and log in."""
        trust = self._trust if self._server.tls is Tls.IMPLICIT else None
        self._smtp = _AtAddress(self._server, addresses, self._timeout_s, trust)
        self._smtp.connect(self._server.host, self._server.port)
        if self._is_cut:
            raise OSError("time is up")
        if self._server.tls is Tls.STARTTLS:
            self._smtp.starttls(context=self._trust)
        if self._server.user is not None and self._server.password is not None:
            self._smtp.login(self._server.user, self._server.password.reveal())

    def hand(self, message: EmailMessage, settings: MailSettings) -> list[str]:
        """Hand the mail over; recipients that were refused while others were taken."""
        assert self._smtp is not None, "opened before"
        if self._is_cut:
            raise OSError("time is up")
        refused = self._smtp.send_message(message, settings.sender, list(settings.recipients))
        return sorted(refused)

    def cut(self) -> None:
        """End it, now."""
        self._is_cut = True
        if self._smtp is not None:
            self._smtp.cut()


class _AtAddress(smtplib.SMTP):
    """Connects to an address that was checked, and is known to TLS by its name."""

    def __init__(
        self,
        server: MailServer,
        addresses: Sequence[str],
        timeout_s: float,
        trust: ssl.SSLContext | None,
    ) -> None:
        self._addresses = addresses
        self._implicit = trust
        # A name of our own: the library would ask the resolver for one. Without a host it does not
        # connect yet, so that the connection can be cut from its first moment on.
        super().__init__(local_hostname=socket.gethostname(), timeout=timeout_s)
        self._host = server.host  # The name that the certificate must have.

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        plain = self._reached(port, timeout / len(self._addresses))
        plain.settimeout(timeout)
        if self._implicit is None:
            return plain
        try:
            return self._implicit.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise

    def _reached(self, port: int, share_s: float) -> socket.socket:
        for address in self._addresses[:-1]:
            with suppress(OSError):  # Nobody is there: the next.
                return socket.create_connection((address, port), share_s)
        return socket.create_connection((self._addresses[-1], port), share_s)

    def cut(self) -> None:
        """Close the socket, and whatever was read of it."""
        if self.sock is not None:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)
        self.close()
