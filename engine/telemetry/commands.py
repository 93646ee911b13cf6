"""The `tidemark shipper` command: its signals, exit codes and messages."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer

from engine.foundation.errors import ConfigError, TidemarkError
from engine.foundation.log_lines import write_log
from engine.foundation.terminal import complain, say
from engine.runtime import system_runtime
from engine.runtime.durable import make_durable
from engine.telemetry.tables import LAKE_SCHEMES
from engine.telemetry.telemetry import SPOOL_DIRECTORY

PARENT_LOOK_S: Final = 0.5
"""How often a child looks whether its parent is still there."""

ORPHAN_DRAIN_S: Final = 60
"""How long one without a parent may take to ship the rest, whatever the lake does."""

_log = logging.getLogger(__name__)

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

_STORE_PREFIX: Final = "AWS_"

DELTA_THREADS: Final = ("TOKIO_WORKER_THREADS", "1")
"""What delta-rs reads when it is loaded: a shipment has nothing to do at once, and with one thread
it takes a sixth less of the processor."""


@app.command("shipper")
def shipper(
    store: Annotated[Path, typer.Option(help="Store folder of the broker; its spool is in there.")],
    lake: Annotated[str, typer.Option(help="Lake: a folder, or a URI such as s3://bucket/lake.")],
    *,
    once: Annotated[bool, typer.Option("--once", help="Ship what is there, then stop.")] = False,
    parent: Annotated[
        int | None,
        typer.Option(help="Number of the process that starts this one; ship the rest without it."),
    ] = None,
) -> None:
    """Ship a broker's spooled facts to the lake, exactly once, until SIGTERM."""
    stop = threading.Event()
    if parent is not None:
        watch_parent(parent, stop)
    write_log()
    try:
        _ship(store, lake_address(lake), stop, once=once)
    except TidemarkError as error:
        complain(f"tidemark shipper: {error}")
        raise typer.Exit(1) from error


def lake_address(lake: str) -> str:
    """A folder as an absolute path, a URI as it is. Raises ConfigError for a lake that Spark and
    delta-rs do not both reach."""
    scheme, separator, _rest = lake.partition("://")
    if not separator and lake.strip():
        return str(Path(lake).absolute())
    if scheme not in LAKE_SCHEMES:
        uris = " or ".join(f"{scheme}://..." for scheme in LAKE_SCHEMES)
        raise ConfigError("lake", lake, f"a folder, {uris}")
    return lake


def storage_options(environment: Mapping[str, str]) -> dict[str, str]:
    """What an object store needs to know, from the variables its own tools use."""
    return {name: value for name, value in environment.items() if name.startswith(_STORE_PREFIX)}


def watch_parent(parent: int, stop: threading.Event) -> None:
    """Set `stop` when the process of this number is not our parent, or no more; end this one when
    it has not ended by itself for so long then.

    SIGKILL of a parent stops no child, and one that went on would hold the spool's lock against the
    next engine's shipper. The number comes from the parent: whoever asks for it here may be too
    late, and get that of the process that has adopted us.
    """

    never = threading.Event()

    def watch() -> None:
        while os.getppid() == parent:
            never.wait(PARENT_LOOK_S)
        _log.warning("the process that started this one has ended; shipping the rest")
        stop.set()
        never.wait(ORPHAN_DRAIN_S)
        _log.error("the rest is not shipped within %d s; the next one ships it", ORPHAN_DRAIN_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _ship(store: Path, lake: str, stop: threading.Event, *, once: bool) -> None:
    os.environ.setdefault(*DELTA_THREADS)
    # Here and not above: delta-rs and pyarrow take a second to load, which `--help` should not.
    from engine.telemetry.shipper.shipper import Shipper, sole_shipper

    directory = store / SPOOL_DIRECTORY
    if once and not directory.is_dir():
        raise ConfigError("store", str(store), "the store folder of a broker that has run")
    runtime = system_runtime()
    make_durable(runtime.disk, str(directory))

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    with sole_shipper(str(directory)):
        ship = Shipper(runtime, str(directory), lake, storage_options(os.environ))
        say(f"shipping {directory} to {lake}")
        if once:
            say(f"shipped {ship.ship_all()} rows")
        else:
            ship.run(stop)
