"""Defines the command-line options that several packages share.

Absent on purpose: work, and whatever a room alone knows.
"""

from __future__ import annotations

import json
import os
import pwd
from typing import Annotated

import typer

from engine.foundation.errors import ConfigError

LakeOption = Annotated[str, typer.Option("--lake", help="Path or URI of the lake.")]
MasterOption = Annotated[str, typer.Option(help="Spark master: local[2], spark://HOST:PORT, ...")]
AddressOption = Annotated[
    str | None, typer.Option(help="Of this machine, for a cluster's executors to call back.")
]
ConfOption = Annotated[
    list[str] | None, typer.Option("--conf", help="A setting of Spark, NAME=VALUE; repeatable.")
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        envvar="TIDEMARK_DATABASE",
        help="sqlite:///PATH or postgresql://USER@HOST/NAME; else a file in ~/.tidemark, "
        "or in the folder that TIDEMARK_HOME names.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON.")]
PreviewOption = Annotated[
    bool, typer.Option("--preview", help="Only say what it would do, and do nothing.")
]


def spark_settings_of(given: list[str] | None) -> dict[str, str]:
    """Settings of Spark, as `--conf` names them. Raises ConfigError."""
    settings = {}
    for one in given or ():
        name, is_set, value = one.partition("=")
        if not (name and is_set):
            raise ConfigError("--conf", one, "NAME=VALUE, like spark.executor.memory=2g")
        settings[name] = value
    return settings


def user_name() -> str:
    """The user of the operating system as whom this process runs, whatever the environment says."""
    number = os.geteuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid-{number}"


def echo_json(value: object) -> None:
    """One line of JSON."""
    typer.echo(json.dumps(value))
