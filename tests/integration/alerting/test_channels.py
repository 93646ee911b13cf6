"""Channels against real servers: what arrives, what is made of answers, and what is never sent."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from email import message_from_bytes
from email.policy import SMTP
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword, Session

from demo.ports import free_port_block
from engine.foundation.errors import ConfigError
from pipelines.alerting.alerts import Notice
from pipelines.alerting.channels import others
from pipelines.alerting.channels.http_channel import HttpChannel
from pipelines.alerting.channels.http_request import HttpRequest
from pipelines.alerting.channels.opening import channels_of
from pipelines.alerting.channels.receivers import receivers_of
from pipelines.alerting.outbox.courier import tried
from pipelines.alerting.outbox.outcomes import Delivered, Failed, Outcome, Trouble
from pipelines.base.outgoing_addresses import Hosts
from pipelines.base.secrets import Secret
from tests.certificates import authority
from tests.integration.alerting.receiving_server import Answer, receiving
from tests.integration.alerting.stores import a_notice, an_alert, resolved

CANARY = "canary-of-a-secret"
ENVIRONMENT = {
    "KEY": CANARY,
    "PASSWORD": CANARY,
}
LOCAL = 'allow_private_hosts = ["127.0.0.1", "localhost"]\nexternal_url = "https://t.example"\n'


def outcome_of(text: str, notice: Notice, **environment: str) -> Outcome:
    """What comes of sending to the one receiver of this file."""
    with ThreadPoolExecutor(2) as threads:
        channels = channels_of(receivers_of(text, "a test"), ENVIRONMENT | environment, threads)
        (channel,) = channels.values()
        return asyncio.run(tried(channel, notice))


def a_receiver(kind: str, **settings: Any) -> str:
    lines = [
        f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}"
        for name, value in settings.items()
    ]
    return LOCAL + '[[receivers]]\nname = "on-call"\n' + f'kind = "{kind}"\n' + "\n".join(lines)


def test_a_webhook_gets_version_four_and_can_recognise_a_second_copy() -> None:
    alert = an_alert(annotations={"summary": "queue 0", "page_url": "https://t.example/g"})
    over = resolved(1)
    notice = a_notice("n/1", alerts=(alert, over), truncated_alerts=3)
    with receiving() as ledger:
        url = f"{ledger.url}/hook"
        outcome = outcome_of(a_receiver("webhook", url=url, bearer_env="KEY"), notice)

    assert outcome == Delivered()
    (request,) = ledger.received
    assert request.headers["Authorization"] == f"Bearer {CANARY}"
    assert request.headers["Idempotency-Key"] == "n_1"
    assert request.headers["Content-Type"] == "application/json"
    labels = {"alertname": "StalledWindow", "severity": "critical", "cluster": "shop"}
    added = {
        "owner": "payments-team",
        "figures": "head=unknown, messages=57, time_lag_s=12.5",
    }
    assert request.decoded == {
        "version": "4",
        "groupKey": notice.group_key,
        "truncatedAlerts": 3,
        "status": "firing",
        "receiver": "on-call",
        "groupLabels": {"group": "payments"},
        "commonLabels": {**labels, "group": "payments"},
        "commonAnnotations": added,
        "externalURL": "https://t.example",
        "alerts": [
            {
                "status": "firing",
                "labels": {**labels, "group": "payments", "queue": "0"},
                "annotations": {"summary": "queue 0", "page_url": "https://t.example/g", **added},
                "startsAt": "2026-05-28T20:25:40.000Z",
                "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": "https://t.example/g",
                "fingerprint": alert.fingerprint,
            },
            {
                "status": "resolved",
                "labels": {**labels, "group": "payments", "queue": "1"},
                "annotations": {"summary": "queue 1 stands still", **added},
                "startsAt": "2026-05-28T20:25:40.000Z",
                "endsAt": "2026-05-28T20:26:40.000Z",
                "generatorURL": "",
                "fingerprint": over.fingerprint,
            },
        ],
    }


def test_owner_and_figures_are_annotations_and_those_of_the_rule_stay() -> None:
    own = {"owner": "as the rule says", "figures": "of its own"}
    nobodys = an_alert(2, owner="", figures={}, annotations={})
    alerts = (an_alert(0), an_alert(1, annotations=own), nobodys)
    with receiving() as ledger:
        notice = a_notice(alerts=alerts)
        assert outcome_of(a_receiver("alertmanager", url=ledger.url), notice) == Delivered()
        assert outcome_of(a_receiver("webhook", url=f"{ledger.url}/hook"), notice) == Delivered()

    pushed, hook = (request.decoded for request in ledger.received)
    for listed in (pushed, hook["alerts"]):
        assert [one["annotations"] for one in listed] == [
            {
                "summary": "queue 0 stands still",
                "owner": "payments-team",
                "figures": "head=unknown, messages=57, time_lag_s=12.5",
            },
            own,
            {},
        ]
        assert not any({"owner", "figures"} & set(one["labels"]) for one in listed)


def test_pagerduty_opens_and_closes_one_incident_a_group() -> None:
    with receiving(lambda _path, _body: (202, {}, b"{}")) as ledger:
        text = a_receiver("pagerduty", url=f"{ledger.url}/v2/enqueue", routing_key_env="KEY")
        assert outcome_of(text, a_notice("n1")) == Delivered()
        assert outcome_of(text, a_notice("n2", alerts=(resolved(),))) == Delivered()

    first, last = (request.decoded for request in ledger.received)
    assert (first["event_action"], last["event_action"]) == ("trigger", "resolve")
    assert first["dedup_key"] == last["dedup_key"]
    assert first["routing_key"] == CANARY
    assert first["client_url"] == "https://t.example"
    payload = first["payload"]
    assert payload["summary"].startswith("[FIRING:1] StalledWindow (group=payments) queue 0")
    assert payload["source"] == "shop"
    assert payload["severity"] == "critical"
    assert payload["timestamp"] == "2026-05-28T20:25:40.000Z"
    assert payload["group"] == "group=payments"
    assert payload["class"] == "StalledWindow"
    assert set(first) <= {
        *("routing_key", "event_action", "dedup_key", "payload", "links", "client", "client_url")
    }


def test_slack_gets_blocks_with_a_text_for_those_who_see_none() -> None:
    alert = an_alert(annotations={"summary": "<!channel> & co", "page_url": "https://t.example/g"})
    with receiving() as ledger:
        text = a_receiver("slack", url_env="SLACK")
        outcome = outcome_of(
            text, a_notice(alerts=(alert,)), SLACK=f"{ledger.url}/services/{CANARY}"
        )

    assert outcome == Delivered()
    message = ledger.received[0].decoded
    assert message["text"] == (
        "[FIRING:1] StalledWindow (group=payments)\n&lt;!channel&gt; &amp; co"
    )
    assert [block["type"] for block in message["blocks"]] == [
        *("header", "section", "section", "actions", "context")
    ]
    assert message["blocks"][1]["text"]["text"] == "<!channel> & co"
    (button,) = message["blocks"][3]["elements"]
    assert button["url"] == "https://t.example/g"


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        ((400, {}, b"invalid"), Trouble.REFUSED),
        ((401, {}, b""), Trouble.NOT_SET_UP),
        ((404, {}, b"no_service"), Trouble.NOT_SET_UP),
        ((302, {"Location": "http://127.0.0.1:1/"}, b""), Trouble.NOT_SET_UP),
        ((429, {"Retry-After": "17"}, b""), Trouble.UNREACHABLE),
        ((503, {}, b""), Trouble.UNREACHABLE),
    ],
)
def test_an_answer_says_what_is_to_be_done(answer: Answer, trouble: Trouble) -> None:
    with receiving(lambda _path, _body: answer) as ledger:
        outcome = outcome_of(a_receiver("webhook", url=ledger.url), a_notice())

    assert isinstance(outcome, Failed)
    assert outcome.trouble is trouble
    assert outcome.retry_after_us == (17_000_000 if answer[0] == 429 else 0)
    assert len(ledger.received) == 1


@pytest.mark.parametrize("kind", ["slack", "pagerduty", "webhook", "mail"])
def test_no_secret_is_in_a_log_an_error_or_a_representation(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = f"you asked for /services/{CANARY} with Bearer {CANARY}".encode()
    with receiving(lambda _path, _body: (404, {}, echo)) as ledger:
        of_kind: dict[str, dict[str, Any]] = {
            "slack": {"url_env": "URL"},
            "pagerduty": {"url": ledger.url, "routing_key_env": "KEY"},
            "webhook": {"url_env": "URL", "bearer_env": "KEY"},
            "mail": {
                "host": "localhost",
                "port": int(ledger.url.rpartition(":")[2]),
                "sender": "a@b.example",
                "recipients": ["c@d.example"],
                "user": "u",
                "password_env": "KEY",
                "timeout_s": 2,
            },
        }
        outcome = outcome_of(
            a_receiver(kind, **of_kind[kind]),
            a_notice(),
            URL=f"{ledger.url}/services/{CANARY}?t={CANARY}",
        )

    assert isinstance(outcome, Failed)
    assert CANARY not in f"{outcome} {caplog.text}"


def test_a_host_that_is_not_allowed_is_not_asked() -> None:
    with receiving() as ledger:
        text = a_receiver("webhook", url=ledger.url)
        with pytest.raises(ConfigError, match="one of allow_hosts"):
            outcome_of(text.replace("127.0.0.1", "other.example", 1), a_notice())
        public = text.replace("allow_private_hosts", "allow_hosts", 1)
        with pytest.raises(ConfigError, match="https, but for allow_private_hosts"):
            outcome_of(public, a_notice())
        secure = outcome_of(public.replace("http://", "https://"), a_notice())

    assert isinstance(secure, Failed)
    assert secure.trouble is Trouble.NOT_SET_UP
    assert "without the address 127.0.0.1" in secure.error
    assert ledger.received == []


def test_nobody_there_is_an_error_and_so_is_one_who_hangs() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        text = a_receiver("webhook", url=f"http://127.0.0.1:{port}/", timeout_s=0.3)
        hangs = outcome_of(text, a_notice())
    assert isinstance(hangs, Failed)
    assert hangs.trouble is Trouble.UNREACHABLE
    assert "0.3 s" in hangs.error or "ReadTimeout" in hangs.error
    refused = outcome_of(a_receiver("webhook", url=f"http://127.0.0.1:{port}/"), a_notice())

    assert isinstance(refused, Failed)
    assert refused.trouble is Trouble.UNREACHABLE
    assert refused.error == f"127.0.0.1 port {port} cannot be reached: connection refused"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly the begin",
        b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\nnonsense",
    ],
)
@pytest.mark.parametrize("is_closed", [True, False])
def test_who_says_yes_has_it_though_the_rest_of_the_answer_never_comes(
    answer: bytes, *, is_closed: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def says_half() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(65_536)
                peer.sendall(answer)
                if not is_closed:
                    ended.wait(10)

        speaking = threading.Thread(target=says_half)
        speaking.start()
        try:
            url = f"http://127.0.0.1:{server.getsockname()[1]}/"
            assert (
                outcome_of(a_receiver("webhook", url=url, timeout_s=3), a_notice()) == Delivered()
            )
        finally:
            ended.set()
            speaking.join()


def test_nobody_at_the_first_address_of_a_name_is_no_reason_not_to_ask_the_second() -> None:
    hosts = Hosts(frozenset(), frozenset(["two.example"]))
    with receiving() as ledger, ThreadPoolExecutor(1) as threads:
        url = Secret(ledger.url.replace("127.0.0.1", "two.example"), "a test")
        channel = HttpChannel(
            lambda _notice: [HttpRequest(url, b"{}")],
            hosts,
            timeout_s=5,
            threads=threads,
            names=lambda _host, _port: ["127.0.0.2", "127.0.0.1"],
        )
        assert asyncio.run(channel.send(a_notice())) == Delivered()

    assert len(ledger.received) == 1


def test_ten_thousand_alerts_are_sent_whatever_fits_into_one_request() -> None:
    texts = {"summary": "s" * 500, "evidence": "é" * 100}
    alerts = tuple(an_alert(queue, annotations=texts) for queue in range(10_000))
    notice = a_notice(alerts=alerts)
    with receiving() as ledger:
        pushed = outcome_of(a_receiver("alertmanager", url=ledger.url), notice)
        parts = list(ledger.received)
        hooked = outcome_of(a_receiver("webhook", url=ledger.url), notice)

    assert pushed == hooked == Delivered()
    assert len(parts) > 1
    assert [one["labels"]["queue"] for part in parts for one in part.decoded] == [
        str(queue) for queue in range(10_000)
    ]
    hook = ledger.received[-1].decoded
    assert len(hook["alerts"]) + hook["truncatedAlerts"] == 10_000
    assert len(hook["alerts"]) > 1_000


def test_the_longest_event_is_one_that_pagerduty_takes() -> None:
    long = "\U0001f4a5" * 1_000
    texts = dict.fromkeys(["summary", "evidence", "description", "first_step"], long)
    alerts = tuple(an_alert(queue, annotations=texts, reason=long) for queue in range(50))
    with receiving() as ledger:
        text = a_receiver("pagerduty", url=ledger.url, routing_key_env="KEY")
        assert outcome_of(text, a_notice(alerts=alerts)) == Delivered()

    assert len(ledger.received[0].body) <= 512 * 1024
    assert ledger.received[0].decoded["event_action"] == "trigger"


class Mailbox:
    """What a mail server was handed; it says no to whom and what it is set to."""

    def __init__(self) -> None:
        self.mails: list[Envelope] = []
        self.says = "250 taken"

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, server: object, session: Session, envelope: Envelope, address: str, _: list[str]
    ) -> str:
        if address.startswith("nobody"):
            return "550 nobody of that name"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802
        self, server: object, session: Session, envelope: Envelope
    ) -> str:
        if self.says.startswith("250"):
            self.mails.append(envelope)
        return self.says


@contextmanager
def mail_server(mailbox: Mailbox, **settings: Any) -> Iterator[int]:
    """A running mail server; its port."""
    controller = Controller(mailbox, hostname="127.0.0.1", port=free_port_block(1), **settings)
    controller.start()
    try:
        yield controller.port
    finally:
        controller.stop()


def a_mail_receiver(port: int, **settings: Any) -> str:
    plain = {"tls": "none", "timeout_s": 5, "recipients": ["anna@shop.example"]}
    return a_receiver(
        "mail", host="localhost", port=port, sender="t@shop.example", **plain | settings
    )


def test_a_mail_server_is_handed_text_and_page_in_one_thread_an_alert() -> None:
    mailbox = Mailbox()
    hostile = an_alert(annotations={"summary": "<b>\r\nBcc: evil@example.com"})
    with mail_server(mailbox) as port:
        for name in ("n1", "n1", "n2"):
            outcome = outcome_of(a_mail_receiver(port), a_notice(name, alerts=(hostile,)))
            assert outcome == Delivered()

    mails = [message_from_bytes(envelope.content, policy=SMTP) for envelope in mailbox.mails]
    assert [envelope.rcpt_tos for envelope in mailbox.mails] == [["anna@shop.example"]] * 3
    first, again, later = (mail["Message-ID"] for mail in mails)
    assert first == again != later
    assert len({mail["References"] for mail in mails}) == 1
    assert mails[0]["Bcc"] is None
    text, page = mails[0].iter_parts()
    assert "<b>  Bcc: evil@example.com" in text.get_content()
    assert "&lt;b&gt;  Bcc: evil@example.com" in page.get_content()


def test_a_report_goes_by_mail_with_its_page_under_its_own_subject(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("<html>all groups kept their objective</html>")
    mailbox = Mailbox()
    with mail_server(mailbox) as port:
        subject = "Lag report, Sunday: all is well"
        notice = replace(a_notice("r1"), subject=subject, attachment=str(page))
        assert outcome_of(a_mail_receiver(port), notice) == Delivered()
        gone = replace(notice, notice_id="r2", attachment=str(tmp_path / "gone.html"))
        outcome = outcome_of(a_mail_receiver(port), gone)
    assert isinstance(outcome, Delivered)
    assert "gone.html (No such file or directory)" in outcome.remark
    first, second = (
        message_from_bytes(envelope.content, policy=SMTP) for envelope in mailbox.mails
    )
    assert first["Subject"] == "Lag report, Sunday: all is well"
    (attached,) = first.iter_attachments()
    assert attached.get_filename() == "report.html"
    assert "all groups kept" in attached.get_content()
    assert list(second.iter_attachments()) == []


@pytest.mark.parametrize(
    ("says", "trouble"),
    [("451 later", Trouble.UNREACHABLE), ("554 not this one", Trouble.REFUSED)],
)
def test_a_mail_server_that_says_no_is_understood(says: str, trouble: Trouble) -> None:
    mailbox = Mailbox()
    mailbox.says = says
    with mail_server(mailbox) as port:
        outcome = outcome_of(a_mail_receiver(port), a_notice())
        assert isinstance(outcome, Failed)
        assert (outcome.trouble, outcome.error) == (trouble, f"localhost: {says}")

        mailbox.says = "250 taken"
        nobody = outcome_of(a_mail_receiver(port, recipients=["nobody@shop.example"]), a_notice())
        assert isinstance(nobody, Failed)
        assert nobody.trouble is Trouble.NOT_SET_UP
        some = ["nobody@shop.example", "anna@shop.example"]
        outcome = outcome_of(a_mail_receiver(port, recipients=some), a_notice())
        assert outcome == Delivered("not to nobody@shop.example")


def test_a_mail_server_without_tls_is_given_no_password() -> None:
    mailbox = Mailbox()
    with mail_server(mailbox) as port:
        outcome = outcome_of(
            a_mail_receiver(port, tls="starttls", user="t", password_env="PASSWORD"), a_notice()
        )

    assert isinstance(outcome, Failed)
    assert outcome.trouble is Trouble.NOT_SET_UP
    assert "STARTTLS" in outcome.error or "NotSupported" in outcome.error
    assert mailbox.mails == []
    with pytest.raises(ConfigError, match="without a password"):
        outcome_of(a_mail_receiver(port, user="t", password_env="PASSWORD"), a_notice())


def test_a_mail_server_that_sends_a_letter_a_second_is_left_when_time_is_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        ended = threading.Event()

        def drip() -> None:
            peer, _ = silent.accept()
            with peer:
                try:
                    while not ended.wait(0.05):
                        peer.sendall(b"2")
                except OSError:
                    ended.set()

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            outcome = outcome_of(a_mail_receiver(port, timeout_s=0.5), a_notice())
            assert outcome == Failed(Trouble.UNREACHABLE, "no answer within 0.5 s")
            assert ended.wait(5), "the connection was not cut"
        finally:
            ended.set()
            dripping.join()


def test_a_password_goes_to_the_mail_server_whose_certificate_is_trusted_and_to_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted = authority(tmp_path)
    certificate, key = trusted.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    logins: list[LoginPassword] = []

    def login(_server: object, _session: object, _envelope: object, _kind: str, data: Any) -> Any:
        logins.append(data)
        return AuthResult(success=data.password == CANARY.encode(), handled=False)

    mailbox = Mailbox()
    settings = {"tls": "starttls", "user": "t", "password_env": "PASSWORD"}
    with mail_server(mailbox, tls_context=context, authenticator=login) as port:
        text = a_mail_receiver(port, **settings).replace('"localhost"\nport', '"127.0.0.1"\nport')
        unknown = outcome_of(text, a_notice())
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted.certificate))
        known = outcome_of(text, a_notice())
        wrong = outcome_of(text, a_notice(), PASSWORD="wrong")

    assert isinstance(unknown, Failed)
    assert unknown.trouble is Trouble.NOT_SET_UP
    assert known == Delivered()
    assert isinstance(wrong, Failed)
    assert wrong.trouble is Trouble.NOT_SET_UP
    assert {login.password for login in logins} == {CANARY.encode(), b"wrong"}
    assert len(mailbox.mails) == 1


def test_a_group_with_the_name_of_everybody_calls_nobody_in_discord() -> None:
    """As it is posted: Discord reads mentions and Markdown in whatever it is sent."""
    name = "@everyone <@123> **bold** [click](https://evil.example)"
    alert = an_alert(labels={"group": name}, annotations={"summary": f"{name} is behind"})
    notice = a_notice(group_labels={"group": name}, alerts=(alert,))
    address = Secret(f"discord://{'1' * 18}/{'a' * 68}", "a test")
    settings = others.OthersSettings(address, frozenset({"discord"}))
    with receiving() as ledger, ThreadPoolExecutor(1) as threads:
        hosts = Hosts(frozenset(), frozenset())
        channel = others.OthersChannel(settings, hosts, timeout_s=10, threads=threads)
        channel._service.notify_url = ledger.url
        assert asyncio.run(channel.send(notice)) == Delivered()
    for request in ledger.received:
        posted = request.decoded["content"]
        assert "everyone" in posted
        assert not re.search(r"@\w|<@|\*\*|\]\(|://evil", posted), posted


def test_a_service_of_apprise_is_notified_when_file_and_hosts_allow_it() -> None:
    with receiving() as ledger:
        address = ledger.url.replace("http://", "json://")
        text = a_receiver("apprise", url_env="SERVICE")
        allowed = 'allow_services = ["json"]\n' + text
        with pytest.raises(ConfigError, match="one of allow_services"):
            outcome_of(text, a_notice(), SERVICE=address)
        with pytest.raises(ConfigError, match="one of allow_hosts"):
            outcome_of(allowed, a_notice(), SERVICE="json://other.example/x")
        with pytest.raises(ConfigError, match="redirects are not followed"):
            outcome_of(allowed, a_notice(), SERVICE=f"{address}/?redirect=yes")
        assert outcome_of(allowed, a_notice(), SERVICE=address) == Delivered()
    (request,) = ledger.received
    assert request.decoded["title"] == "[FIRING:1] StalledWindow (group=payments)"
    assert "queue 0 stands still" in request.decoded["message"]
