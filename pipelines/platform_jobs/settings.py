"""The operator's settings for the platform's jobs: lake, Spark, receivers, objectives.

Place in the walk: a TOML file beside the executor, named in TIDEMARK_OWN_JOBS → every run.

    lake = "/srv/lake"
    master = "spark://spark-master:7077"   # else local[2]
    address = "10.0.0.5"                   # of this machine, for the executors of that Spark
    conf = ["spark.executor.memory=2g"]
    receivers = "/etc/tidemark/receivers.toml"
    objectives = "/etc/tidemark/objectives.toml"
    pages = "https://tidemark.example"

Invariant: who edits jobs at the centre chooses among what stands here; paths, addresses and
settings of Spark do not come over the wire, for they may run code.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

import msgspec

from engine.foundation.errors import ConfigError

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
