"""Creates the channels that a receivers file defines, reading secrets and checking hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial

from engine.foundation.errors import ConfigError, MustBe
from pipelines.alerting.alerts import Notice
from pipelines.alerting.channels import alertmanager, pagerduty, slack, webhook
from pipelines.alerting.channels.http_channel import HttpChannel, checked_url
from pipelines.alerting.channels.http_request import (
    BODY_BYTES_MAX,
    HttpRequest,
    in_parts_of,
    shortened_to,
)
from pipelines.alerting.channels.mail import MailChannel, MailServer, MailSettings, Tls
from pipelines.alerting.channels.others import OthersChannel, OthersSettings
from pipelines.alerting.channels.receivers import (
    Alertmanager,
    Mail,
    Others,
    PagerDuty,
    Receiver,
    Receivers,
    Slack,
    Webhook,
)
from pipelines.alerting.outbox.courier import Channel
from pipelines.base.outgoing_addresses import Hosts, plain_host
from pipelines.base.secrets import Secret, secret_from

Environment = Mapping[str, str]


def channels_of(
    receivers: Receivers, environment: Environment, threads: Executor
) -> dict[str, Channel]:
    """A channel for each receiver, by its name; `threads` is for what blocks, one a receiver.

    Raises ConfigError that names the receiver and what is wrong with it.
    """
    hosts = Hosts(
        frozenset(map(plain_host, receivers.allow_hosts)),
        frozenset(map(plain_host, receivers.allow_private_hosts)),
    )
    channels: dict[str, Channel] = {}
    for receiver in receivers.receivers:
        try:
            if isinstance(receiver, Mail):
                channels[receiver.name] = _mail(receiver, hosts, environment, threads)
            elif isinstance(receiver, Others):
                channels[receiver.name] = OthersChannel(
                    OthersSettings(
                        _wanted("url", receiver.url_env, receiver.url_file, environment),
                        frozenset(receivers.allow_services),
                    ),
                    hosts,
                    timeout_s=receiver.timeout_s,
                    threads=threads,
                )
            else:
                url, encode = _encoder(receiver, receivers.external_url, environment)
                checked_url(url.reveal(), hosts, origin=url.origin)
                channels[receiver.name] = HttpChannel(
                    encode, hosts, timeout_s=receiver.timeout_s, threads=threads
                )
        except ConfigError as error:
            place = f"receiver {receiver.name}" + (f", {error.place}" if error.place else "")
            raise MustBe(error.key, error.value, error.allowed, place) from error
    return channels


def _encoder(
    receiver: Receiver, external_url: str, environment: Environment
) -> tuple[Secret, Callable[[Notice], list[HttpRequest]]]:
    if isinstance(receiver, Alertmanager):
        url = Secret(f"{receiver.url.rstrip('/')}/api/v2/alerts", "the receivers' file")
        bearer = secret_from(receiver.bearer_env, receiver.bearer_file, environment, key="bearer")
        push = alertmanager.AlertmanagerSettings(url, bearer, receiver.valid_for_s)
        return url, in_parts_of(BODY_BYTES_MAX, partial(alertmanager.pushed, settings=push))
    if isinstance(receiver, Webhook):
        given = (receiver.url, receiver.url_env, receiver.url_file)
        if sum(one is not None for one in given) != 1:
            raise MustBe("url", "***", "given once: url, url_env or url_file")
        if receiver.url is not None:
            url = Secret(receiver.url, "the receivers' file")
        else:
            url = _wanted("url", receiver.url_env, receiver.url_file, environment)
        bearer = secret_from(receiver.bearer_env, receiver.bearer_file, environment, key="bearer")
        hook = webhook.WebhookSettings(url, bearer, external_url)
        return url, shortened_to(BODY_BYTES_MAX, partial(webhook.webhook, settings=hook))
    if isinstance(receiver, Slack):
        url = _wanted("url", receiver.url_env, receiver.url_file, environment)
        message = partial(slack.message, settings=slack.SlackSettings(url))
        return url, shortened_to(BODY_BYTES_MAX, message)
    assert isinstance(receiver, PagerDuty), "all other kinds are served"
    url = Secret(receiver.url, "the receivers' file")
    key = _wanted("routing_key", receiver.routing_key_env, receiver.routing_key_file, environment)
    events = pagerduty.PagerDutySettings(url, key, external_url)
    event = partial(pagerduty.event, settings=events)
    return url, shortened_to(pagerduty.EVENT_BYTES_MAX, event)


def _mail(receiver: Mail, hosts: Hosts, environment: Environment, threads: Executor) -> MailChannel:
    password = secret_from(
        receiver.password_env, receiver.password_file, environment, key="password"
    )
    if (receiver.user is None) != (password is None):
        raise MustBe("user", receiver.user, "given with password_env or password_file")
    tls = Tls(receiver.tls)
    if tls is Tls.NONE and (password is not None or not hosts.is_private(receiver.host)):
        raise MustBe(
            "tls",
            "none",
            "starttls or implicit; none only without a password on allow_private_hosts",
        )
    return MailChannel(
        MailServer(receiver.host, receiver.port, tls, receiver.user, password),
        MailSettings(receiver.sender, receiver.recipients),
        hosts,
        timeout_s=receiver.timeout_s,
        threads=threads,
    )


def _wanted(key: str, variable: str | None, file: str | None, environment: Environment) -> Secret:
    found = secret_from(variable, file, environment, key=key)
    if found is None:
        raise MustBe(f"{key}_env", None, f"given, or {key}_file")
    return found
