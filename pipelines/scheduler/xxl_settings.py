"""Reads the configuration files of XXL-Job admins and executors as our settings.

Place in the walk: once at start, below environment and flags. The file is the `.properties` file
that an admin or an executor of XXL-Job has; its keys of Spring are recognised.

Invariant: a key that means nothing here is reported with the reason, an unknown one with the
nearest known key, and neither stops a start; a value that cannot be is refused with its line.
Absent on purpose: Spring's variables (`${...}`), which only Spring fills in: they are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from engine.foundation.config_layers import Setting, from_file, layered, sift, text_of
from engine.foundation.errors import MustBe

FILE_BYTES_MAX: Final = 1024 * 1024
PORT_MAX: Final = 65_535
DAYS_MAX: Final = 36_500
TIMEOUT_S_MAX: Final = 600


class Reader(NamedTuple):
    """How a text becomes a value; `read` raises ValueError for what is not `allowed`."""

    read: Callable[[str], Any]
    allowed: str


def _whole(low: int, high: int) -> Reader:
    def read(text: str) -> int:
        number = int(text)
        if not low <= number <= high:
            raise ValueError(number)
        return number

    return Reader(read, f"a whole number from {low:,} to {high:,}")


def _listed(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


_TEXT: Final = Reader(str, "a text")
_ADDRESSES: Final = Reader(_listed, "addresses with commas between them")
_PORT: Final = _whole(0, PORT_MAX)
_DAYS: Final = _whole(-1, DAYS_MAX)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one kind of file."""

    ours: Mapping[str, tuple[str, Reader]]
    """By their key: our name, and how the value is read; an empty one was not given."""
    without_effect: Mapping[str, str]
    """Keys, and beginnings of keys that end with a dot, that mean nothing here, and why."""


_SPRING: Final = {
    "spring.datasource.": "--database, or TIDEMARK_DATABASE, names the database",
    "spring.mail.": "alarms go through the rules and channels of alerting",
    "spring.": "it is Spring's",
    "server.": "it is Spring's",
    "management.": "it is Spring's",
    "mybatis.": "it is MyBatis's",
    "logging.": "it is Spring's; a centre and an executor write warnings to the standard error",
}

CENTRE: Final = Keys(
    {
        "server.port": ("port", _PORT),
        "xxl.job.accessToken": ("token", _TEXT),
        "xxl.job.timeout": ("timeout_s", _whole(1, TIMEOUT_S_MAX)),
        "xxl.job.logretentiondays": ("log_days", _DAYS),
    },
    {
        "server.servlet.context-path": "calls are answered below / and /xxl-job-admin alike",
        "xxl.job.schedule.batchsize": "what is due is planned in one transaction",
        "xxl.job.i18n": "pages and messages are in English",
        "xxl.job.triggerpool.fast.max": "runs are sent by one loop, not by threads",
        "xxl.job.triggerpool.slow.max": "runs are sent by one loop, not by threads",
        **_SPRING,
    },
)

EXECUTOR: Final = Keys(
    {
        "xxl.job.admin.addresses": (
            "admins",
            Reader(_listed, "addresses with commas between them"),
        ),
        "xxl.job.accessToken": ("token", _TEXT),
        "xxl.job.admin.accessToken": ("token", _TEXT),
        "xxl.job.executor.appname": ("app", _TEXT),
        "xxl.job.executor.address": ("address", _TEXT),
        "xxl.job.executor.ip": ("host", _TEXT),
        "xxl.job.executor.port": ("port", _PORT),
        "xxl.job.executor.logpath": ("home", _TEXT),
        "xxl.job.executor.logretentiondays": ("log_days", _DAYS),
    },
    {
        "xxl.job.admin.timeout": "an admin is asked for 3 s at most, and again",
        "xxl.job.executor.enabled": "an executor runs while its command does",
        "xxl.job.executor.excludedpackage": "--module names the one module with handlers",
        **_SPRING,
    },
)


def settings_of(file: Path | None, keys: Keys) -> tuple[dict[str, Any], list[str]]:
    """The settings of a file by our names, and a sentence about each key that means nothing here.

    Raises ConfigError for a file that cannot be read, and for a value that cannot be.
    """
    if file is None:
        return {}, []
    found = layered(from_file(text_of(_bytes_of(file)), str(file)))
    reasons = {key: why for key in found if (why := _why(key, keys.without_effect))}
    kept, warnings = sift(found, tuple(keys.ours), reasons)
    values: dict[str, Any] = {}
    for key, setting in kept.items():
        name, reader = keys.ours[key]
        value = _read(setting, reader)
        if name in values and value != values[name]:
            raise MustBe(key, "***", "the same under both of its names", setting.place)
        values |= {} if value is None else {name: value}
    return values, warnings


def _why(key: str, reasons: Mapping[str, str]) -> str:
    """Why a key means nothing here: by its name, else by the longest beginning that is listed."""
    beginnings = sorted((one for one in reasons if one.endswith(".")), key=len, reverse=True)
    return reasons.get(key) or next((reasons[one] for one in beginnings if key.startswith(one)), "")


def _read(setting: Setting, reader: Reader) -> Any:
    if "${" in setting.value:
        allowed = "a value: nothing fills in ${...} here"
        raise MustBe(setting.key, "***", allowed, setting.place)
    if not setting.value:
        return None
    try:
        return reader.read(setting.value)
    except ValueError as error:
        raise MustBe(setting.key, setting.value, reader.allowed, setting.place) from error


def _bytes_of(file: Path) -> bytes:
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise MustBe("config", str(file), f"at most {FILE_BYTES_MAX:,} bytes")
        return file.read_bytes()
    except OSError as error:
        raise MustBe("config", str(file), f"a file that can be read ({error})") from error
