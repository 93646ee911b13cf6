"""Centres as processes, as an operator starts them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pipelines.scheduler.wire.addresses import Address
from tests.integration.scheduler.parties import CONTEXT, PATIENCE_S, TOKEN

COMMAND = Path(sys.prefix) / "bin" / "tidemark"
ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def centre_process(
    database: str, *more: str, port: int = 0, log: Path | None = None
) -> AsyncIterator[tuple[asyncio.subprocess.Process, Address]]:
    """`tidemark scheduler run`, and where executors find it; ended by SIGTERM unless it is dead."""
    with (log or Path(os.devnull)).open("ab") as log_file:
        process = await asyncio.create_subprocess_exec(
            *(COMMAND, "scheduler", "run", "--port", str(port), "--database", database, *more),
            stdout=asyncio.subprocess.PIPE,
            stderr=log_file,
            env=os.environ | {"TIDEMARK_SCHEDULER_TOKEN": TOKEN},
            cwd=ROOT,
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            ready = (await process.stdout.readline()).decode()
        yield process, Address.parse(ready.split("address=")[1].strip().rstrip("/") + CONTEXT)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
