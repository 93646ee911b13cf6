"""The `tidemark store check` command: its options, output and exit codes.

Exit codes: 0 sound, 1 it could not be checked, 3 damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from engine.foundation.config import split_settings, with_settings
from engine.foundation.config_layers import text_of
from engine.foundation.errors import ConfigError, TidemarkError
from engine.foundation.java_properties import parse
from engine.foundation.terminal import say
from engine.runtime.disk import Disk, ReadOnlyDisk
from engine.store.check import StoreCheck
from engine.store.config import StoreConfig

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
store = typer.Typer(no_args_is_help=True, help="Look at the files of a store.")
app.add_typer(store, name="store")

DAMAGED: Final = 3
SHAPE_KEYS: Final = (
    "storePathCommitLog",
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "maxHashSlotNum",
    "maxIndexNum",
)
"""What must be known to read the files."""


@store.callback()
def look() -> None:
    """Look at the files of a store."""


@store.command("check")
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the store.")],
    *,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="File sizes, if the store's own settings do not have them."),
    ] = None,
) -> None:
    """Read a whole store and show what is damaged; nothing is changed.

    Exit code 0: sound; 1: it could not be checked; 3: damaged. A broker may be running on the
    store: what is not synced yet is then counted, not judged.
    """
    disk = ReadOnlyDisk()
    try:
        config = config_of(disk, folder, split_settings(settings or []))
        report = StoreCheck(disk, config).run()
    except TidemarkError as error:
        say(f"tidemark store check: {error}", err=True)
        raise typer.Exit(1) from error
    for line in report.lines():
        say(line)
    if report.damaged:
        raise typer.Exit(DAMAGED)


def config_of(disk: Disk, folder: Path, settings: Mapping[str, str]) -> StoreConfig:
    """Where the files are and how long: by `settings`, by the settings kept in the store, else by
    the files themselves. Raises ConfigError.
    """
    root = str(folder.absolute())
    for key, value in settings.items():
        if key not in SHAPE_KEYS:
            raise ConfigError(key, value, f"one of {', '.join(SHAPE_KEYS)}")
    kept_path = f"{root}/config/broker.properties"
    kept = parse(text_of(disk.read(kept_path))) if disk.exists(kept_path) else []
    given = {each.key: each.value for each in kept if each.key in SHAPE_KEYS} | dict(settings)
    config = with_settings(StoreConfig(root), given, readers={})
    log_bytes = _longest(disk, [config.commit_log_folder])
    if "mappedFileSizeCommitLog" not in given and log_bytes:
        config = replace(config, mapped_file_size_commit_log_bytes=log_bytes)
    queues = config.consume_queue_folder
    topics = [f"{queues}/{topic}" for topic in disk.names(queues)]
    folders = [f"{topic}/{name}" for topic in topics for name in disk.names(topic)]
    queue_bytes = _longest(disk, folders)
    if "mappedFileSizeConsumeQueue" not in given and queue_bytes:
        config = replace(config, mapped_file_size_consume_queue_bytes=queue_bytes)
    return config


def _longest(disk: Disk, folders: Iterable[str]) -> int:
    """Length of the longest file whose name is an offset; 0 without any."""
    longest = 0
    for folder in folders:
        for name in disk.names(folder):
            if len(name) == 20 and name.isdecimal():
                file = disk.open(f"{folder}/{name}")
                longest = max(longest, file.size_bytes())
                file.close()
    return longest
