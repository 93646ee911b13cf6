"""`tidemark executor`: handlers of one module, run when a centre asks. Absent on purpose: work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from engine.foundation.errors import ConfigError

app = typer.Typer(no_args_is_help=True)


@app.callback()
def scheduler() -> None:
    """Jobs."""


@app.command("executor")
def executor(
    admin: Annotated[
        list[str],
        typer.Option(help="Address of an admin with its context path; may be given again."),
    ],
    name: Annotated[str, typer.Option("--app", help="Name under which the centre knows it.")],
    module: Annotated[str, typer.Option(help="Module with the handlers, as for `import`.")],
    home: Annotated[
        Path | None,
        typer.Option(help="Folder of logs and results; else one in ~/.tidemark, by name."),
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: a free one.", min=0, max=65_535)] = 9999,
    address: Annotated[
        str | None, typer.Option(help="How the centre reaches it; else http://HOST:PORT/.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the access token; else TIDEMARK_JOBS_TOKEN has it."),
    ] = None,
    scripts: Annotated[
        bool,
        typer.Option("--scripts", help="Run scripts from the centre: whoever edits jobs may."),
    ] = False,
    processes: Annotated[int, typer.Option(help="Runs at work at once.", min=1, max=1000)] = 32,
    log_days: Annotated[int, typer.Option(help="Days that logs stay; < 3: for ever.")] = 30,
    words: Annotated[str, typer.Option(help="Of which XXL-Job: 3.4 and before, or 3.5.")] = "3.4",
) -> None:
    """Run the handlers of a module when a centre asks, until stopped."""
    import asyncio
    import logging
    import os

    from pipelines.alerting.channels.secret import secret_from
    from pipelines.alerting.state import home_folder
    from pipelines.scheduler.executor.serving import TOKEN_VARIABLE, Settings, serve_in_foreground
    from pipelines.scheduler.wire.messages import Dialect

    if words not in {dialect.value for dialect in Dialect}:
        raise ConfigError("words", words, "3.4 or 3.5")
    variable = TOKEN_VARIABLE if token_file is None and os.environ.get(TOKEN_VARIABLE) else None
    file = None if token_file is None else str(token_file)
    token = secret_from(variable, file, os.environ, key="token")
    settings = Settings(
        app=name,
        module=module,
        admins=tuple(admin),
        home=home or home_folder() / "executors" / name.replace("/", "_"),
        host=host,
        port=port,
        address=address,
        token=None if token is None else token.reveal(),
        scripts=scripts,
        processes=processes,
        log_days=log_days,
        dialect=Dialect(words),
    )

    def ready(line: str) -> None:
        typer.echo(line)
        sys.stdout.flush()

    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    asyncio.run(serve_in_foreground(settings, ready))
