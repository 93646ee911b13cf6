"""Builds a platform job's `tidemark` command from its parameters and the settings.

Place in the walk: parameters as written at the job, `NAME=VALUE` with spaces between, and the
operator's settings, a TOML file named in TIDEMARK_OWN_JOBS → arguments of `tidemark`, which run in
a process of their own: what Spark and checks load is gone when they end.

    lake = "/srv/lake"
    master = "spark://spark-master:7077"   # else local[2]
    address = "10.0.0.5"                   # of this machine, for the executors of that Spark
    conf = ["spark.executor.memory=2g"]
    receivers = "/etc/tidemark/receivers.toml"
    objectives = "/etc/tidemark/objectives.toml"
    pages = "https://tidemark.example"

Invariant: a parameter that a job does not know is an error, and each value is one of a kind that
cannot name a file or a program: paths, addresses and settings of Spark do not come over the wire.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from engine.foundation.errors import ConfigError
from pipelines.base.time_units import utc_text
from pipelines.reading.report_names import name_of

RULE_SETS: Final = ("ours", "burrow", "thresholds", "alerts")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ZONE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*")
Command = list[str]
VARIABLE: Final = "TIDEMARK_OWN_JOBS"


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The file."""

    lake: str
    master: str = "local[2]"
    address: str = ""
    conf: tuple[str, ...] = ()
    receivers: str = ""
    objectives: str = ""
    pages: str = ""
    database: str = ""
    """Of alerts and jobs; empty: the home folder's, or TIDEMARK_DATABASE."""


def read_settings(named: str | None) -> Settings:
    """The settings in a file; ConfigError that says what is wrong."""
    if not named:
        allowed = 'the name of a file that says at least lake = "..." (docs/reports.md)'
        raise ConfigError(VARIABLE, named, allowed)
    try:
        document = tomllib.loads(Path(named).read_text(encoding="utf-8"))
        return msgspec.convert(document, Settings)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(VARIABLE, named, f"a TOML file ({error})") from None
    except msgspec.ValidationError as error:
        raise ConfigError(VARIABLE, "***", str(error), named) from None


def given(text: str, allowed: tuple[str, ...]) -> dict[str, str]:
    """Parameters by name. ConfigError for one that is not among those allowed."""
    values = {}
    for part in text.split():
        name, sign, value = part.partition("=")
        if not sign or name not in allowed or name in values:
            wanted = f"NAME=VALUE, each once; names: {', '.join(allowed) or 'none'}"
            raise ConfigError("parameters", part, wanted)
        values[name] = value
    return values


def lag_report(settings: Settings, options: Mapping[str, str], fire_time: datetime) -> Command:
    """`period=daily zone=Europe/Berlin send=team,boss`; a run that is asked for by hand may say
    `again=NAME`, from the cut of that report, and `newest=yes`, from what is known now."""
    command = ["reports", "run", "--lake", settings.lake, *_period(options, fire_time)]
    is_newest = _one_of("newest", options.get("newest", "no"), ("yes", "no")) == "yes"
    command += [*(["--newest"] if is_newest else []), *_spark(settings)]
    for name in ("objectives", "pages"):
        command += [f"--{name}", value] if (value := getattr(settings, name)) else []
    return [*command, *_database(settings), *_sent(settings, options)]


def expectations(settings: Settings, options: Mapping[str, str], fire_time: datetime) -> Command:
    """`fail_on=warning`."""
    del fire_time
    least = _one_of("fail_on", options.get("fail_on", "critical"), ("critical", "warning", "info"))
    return ["check", "--lake", settings.lake, "--fail-on", least, *_spark(settings)]


def maintenance(settings: Settings, options: Mapping[str, str], fire_time: datetime) -> Command:
    """Without parameters: how long what is kept is settled where the lake's maintainer is."""
    del options, fire_time
    return ["lake", "maintain", "--lake", settings.lake, "--once"]


def retention(settings: Settings, options: Mapping[str, str], fire_time: datetime) -> Command:
    """Files of reports. Rows of tables go by the lake's maintainer, runs of jobs by the centre."""
    del options, fire_time
    return ["reports", "tidy", "--lake", settings.lake, *_database(settings)]


def backtest(settings: Settings, options: Mapping[str, str], fire_time: datetime) -> Command:
    """`rules=ours,burrow,thresholds days=7`: the last days, held against planted incidents."""
    rules = options.get("rules", "ours,burrow,thresholds")
    for rule in rules.split(","):
        _one_of("rules", rule, RULE_SETS)
    span = timedelta(days=int(_days("days", options.get("days", "7"), 92)))
    begin, end = utc_text(fire_time - span), utc_text(fire_time)
    return ["backtest", rules, "--lake", settings.lake, "--from", begin, "--to", end]


def alert_digest(settings: Settings, options: Mapping[str, str], fire_time: datetime) -> Command:
    """`days=1 send=team`."""
    days = _days("days", options.get("days", "1"), 92)
    command = ["reports", "digest", "--lake", settings.lake, "--at", utc_text(fire_time)]
    return [*command, "--days", days, *_database(settings), *_sent(settings, options)]


Making = Callable[[Settings, Mapping[str, str], datetime], Command]
JOBS: Final[dict[str, tuple[Making, tuple[str, ...]]]] = {
    "lag-report": (lag_report, ("period", "zone", "again", "newest", "send")),
    "expectations": (expectations, ("fail_on",)),
    "table-maintenance": (maintenance, ()),
    "backtest": (backtest, ("rules", "days")),
    "retention": (retention, ()),
    "alert-digest": (alert_digest, ("days", "send")),
}
"""What each handler runs, and the parameters that it knows."""


def command_of(handler: str, parameters: str, settings: Settings, fire_time: datetime) -> Command:
    """The arguments of `tidemark` for a run. Raises ConfigError."""
    making, allowed = JOBS[handler]
    return making(settings, given(parameters, allowed), fire_time)


def _period(options: Mapping[str, str], fire_time: datetime) -> Command:
    again = options.get("again")
    if again is None:
        period = _one_of("period", options.get("period", "daily"), ("hourly", "daily", "weekly"))
        return ["--period", period, "--at", utc_text(fire_time), *_zone(options)]
    if name_of(again) is None or not {"period", "zone"}.isdisjoint(options):
        allowed = "a report as `tidemark reports list` names it, without period and zone"
        raise ConfigError("again", again, allowed)
    return ["--again", again]


def _spark(settings: Settings) -> Command:
    command = ["--master", settings.master]
    command += ["--address", settings.address] if settings.address else []
    for one in settings.conf:
        command += ["--conf", one]
    return command


def _zone(options: Mapping[str, str]) -> Command:
    zone = options.get("zone", "UTC")
    if not _ZONE.fullmatch(zone):
        raise ConfigError("zone", zone, "an IANA zone like Europe/Berlin")
    return ["--zone", zone]


def _database(settings: Settings) -> Command:
    return ["--database", settings.database] if settings.database else []


def _sent(settings: Settings, options: Mapping[str, str]) -> Command:
    names = [name for name in options.get("send", "").split(",") if name]
    for name in names:
        if not _NAME.fullmatch(name):
            raise ConfigError("send", name, "names of receivers, commas between")
    if not names:
        return []
    if not settings.receivers:
        raise ConfigError("send", options["send"], "given where the settings name a receivers file")
    command = ["--receivers", settings.receivers]
    for name in names:
        command += ["--send", name]
    return command


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ConfigError(name, value, f"one of {', '.join(allowed)}")
    return value


def _days(name: str, value: str, most: int) -> str:
    if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= most):
        raise ConfigError(name, value, f"days, 1 to {most:,}")
    return str(int(value))
