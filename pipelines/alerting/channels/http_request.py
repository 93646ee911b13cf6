"""Pure functions that build channel requests, shorten them to fit and read responses.

No notice is too long for its channel: one that says more than fits names fewer alerts and counts
the others, or, where each alert stands for itself, is sent in parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pipelines.alerting.alerts import Notice
from pipelines.alerting.channels.notice_text import one_line
from pipelines.alerting.outbox.outcomes import Delivered, Failed, Outcome, Trouble
from pipelines.base.secrets import Secret, without_secrets

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
"""No channel takes more; a request that is longer is not sent."""

ANSWER_CHARS_MAX: Final = 200
"""Of an answer, in an error."""

_LATER: Final = frozenset({408, 425, 429})
_NOT_THIS: Final = frozenset({400, 413, 422})


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A POST of JSON. Printed, it shows neither body nor secrets."""

    url: Secret
    body: bytes = field(repr=False)
    bearer: Secret | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[Secret, ...] = ()
    """Secrets inside the body."""

    def secrets(self) -> tuple[Secret | None, ...]:
        """What no error may show."""
        return (self.url, self.bearer, *self.hidden)


Encode = Callable[[Notice], HttpRequest]


def shortened_to(bytes_max: int, encode: Encode) -> Callable[[Notice], list[HttpRequest]]:
    """One request that fits: it names as many alerts as there is room for, and counts the rest."""

    def requests(notice: Notice) -> list[HttpRequest]:
        request = encode(notice)
        while len(request.body) > bytes_max and len(notice.alerts) > 1:
            named = notice.alerts[: len(notice.alerts) // 2]
            left_out = notice.truncated_alerts + len(notice.alerts) - len(named)
            notice = replace(notice, alerts=named, truncated_alerts=left_out)
            request = encode(notice)
        return [request]

    return requests


def in_parts_of(bytes_max: int, encode: Encode) -> Callable[[Notice], list[HttpRequest]]:
    """As many requests as all alerts need: sent again, each is the same alert."""

    def requests(notice: Notice) -> list[HttpRequest]:
        request = encode(notice)
        half = len(notice.alerts) // 2
        if len(request.body) <= bytes_max or not half:
            return [request]
        first, second = notice.alerts[:half], notice.alerts[half:]
        return [
            *requests(replace(notice, alerts=first)),
            *requests(replace(notice, alerts=second)),
        ]

    return requests


def json_bytes(value: object) -> bytes:
    """JSON in ASCII: whatever a text holds, it is inside its string; what is no number is null."""
    return json.dumps(_encodable(value), allow_nan=False).encode()


def outcome_of(
    status: int, headers: Mapping[str, str], text: str, *, host: str, request: HttpRequest
) -> Outcome:
    """What an answer says of the notice."""
    if 200 <= status < 300:
        return Delivered()
    shown = one_line(without_secrets(text, request.secrets()), ANSWER_CHARS_MAX)
    answer = f"{host} answered {status}" + (f": {shown}" if shown else "")
    if status in _LATER or status >= 500:
        return Failed(Trouble.UNREACHABLE, answer, _retry_after_us(headers))
    if status in _NOT_THIS:
        return Failed(Trouble.REFUSED, answer)
    if 300 <= status < 400:
        return Failed(Trouble.NOT_SET_UP, f"{host} redirects, which is not followed ({status})")
    return Failed(Trouble.NOT_SET_UP, answer)


def _retry_after_us(headers: Mapping[str, str]) -> int:
    """Seconds only: a date would need a clock that agrees."""
    seconds = headers.get("retry-after", "")
    return (
        int(seconds) * 1_000_000
        if seconds.isascii() and seconds.isdigit() and len(seconds) < 7
        else 0
    )


def _encodable(value: object) -> object:
    """The value without lone surrogates, which other readers of JSON refuse, and without NaN."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {str(_encodable(name)): _encodable(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(part) for part in value]
    return value
