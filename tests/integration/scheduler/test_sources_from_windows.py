"""A shell source with carriage returns and a byte-order mark runs, whichever way it came in; other
sources and parameters are what their author wrote.
"""

from __future__ import annotations

import json
from pathlib import Path

from pipelines.database.database import Database
from pipelines.scheduler.store import glue, jobs, tables
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.parties import executor_here, receiving_admin
from tests.integration.scheduler.test_open_api import ADD, a_program
from tests.integration.scheduler.test_the_jobs_command import asked

WINDOWS = '\ufeffecho "$1" | od -c\r\nif true\r\nthen\r\n  exit 3\r\nfi\r\n'
UNIX = 'echo "$1" | od -c\nif true\nthen\n  exit 3\nfi\n'
SHELL = {"handler": "", "glue_type": "GLUE_SHELL"}


async def test_a_real_shell_runs_what_a_foreign_admin_sends_with_its_parameters_as_they_are(
    tmp_path: Path,
) -> None:
    async with (
        receiving_admin() as admin,
        executor_here(tmp_path, admin.url, scripts=True) as executor,
    ):
        await executor.run(1, **SHELL, glue_source=WINDOWS, parameters="a\r\nb")
        assert (await admin.result_of(1)).message == "script exit value(3)"
        text = (await executor.log(1)).text
        assert r"a  \r  \n   b  \n" in text, text
        assert "command not found" not in text
        python = (
            'import sys\r\nsys.exit(len("""\r\n""".encode()) + len(open(__file__, "rb").read()))'
        )
        fields = {"handler": "", "glue_type": "GLUE_PYTHON", "glue_source": python}
        await executor.run(2, **fields)
        assert (await admin.result_of(2)).message == f"script exit value({len(python) + 1})"


async def test_it_is_stored_without_them_by_the_open_api(tmp_path: Path) -> None:
    shell = {"glueType": "GLUE_SHELL", "executorHandler": "", "glueSource": WINDOWS}
    async with a_program(tmp_path) as program:
        params = {"executorParam": "a\r\nb"}
        added = await program.ask("addJob", **(ADD | shell | params))
        job_id = int(str(added.content))
        stored = program.job(job_id).settings
        assert (stored.glue_source, stored.parameters) == (UNIX, "a\r\nb")
        edited = await program.ask("updateJob", id=job_id, glueSource="exit 4\r\n")
        assert edited.is_success, edited.message
        assert program.job(job_id).settings.glue_source == "exit 4\n"
        await program.ask("updateJob", id=job_id, glueType="GLUE_NODEJS", glueSource="1\r\n")
        versions = [version.source for version in glue.glue_of(program.database, job_id)]
        assert versions == ["1\r\n", "exit 4\n", UNIX]


def test_it_is_stored_without_them_by_the_command_and_read_so_from_an_older_store(
    tmp_path: Path,
) -> None:
    source = tmp_path / "job.sh"
    source.write_bytes(WINDOWS.encode())
    add = ("jobs", "add", "--group", "g", "title=a", "glueType=GLUE_SHELL", "glueSource=echo\r\n1")
    asked(tmp_path, *add)
    assert asked(tmp_path, "jobs", "glue", "show", "1") == "echo\n1"
    asked(tmp_path, "jobs", "glue", "edit", "1", str(source))
    assert json.loads(asked(tmp_path, "jobs", "glue", "show", "1", "--json"))["source"] == UNIX
    asked(tmp_path, "jobs", "glue", "edit", "1", "-", "--type", "GLUE_PYTHON", stdin=WINDOWS)
    kept = json.loads(asked(tmp_path, "jobs", "glue", "show", "1", "--json"))["source"]
    assert kept == WINDOWS.removeprefix("\ufeff"), (
        "the mark is the file's, the line ends its author's"
    )
    asked(tmp_path, "jobs", "glue", "edit", "1", "-", "--type", "GLUE_SHELL", stdin="echo 1")
    database = Database.at(sqlite_address(tmp_path))
    with database.writing() as connection:
        connection.execute(tables.jobs.update().values(glue_source=WINDOWS))
    assert jobs.job_of(database, 1).settings.glue_source == UNIX
    database.close()


def test_a_version_of_an_older_store_is_shown_and_given_back_as_it_runs(tmp_path: Path) -> None:
    add = ("jobs", "add", "--group", "g", "title=a", "glueType=GLUE_SHELL", "glueSource=echo 1")
    asked(tmp_path, *add)
    asked(tmp_path, "jobs", "glue", "edit", "1", "-", stdin="echo 2")
    database = Database.at(sqlite_address(tmp_path))
    versions = tables.glue_versions
    with database.writing() as connection:
        older = versions.update().where(versions.c.glue_id == 1)
        connection.execute(older.values(source=WINDOWS))
    assert asked(tmp_path, "jobs", "glue", "show", "1", "1") == UNIX.strip()
    shown = json.loads(asked(tmp_path, "jobs", "glue", "show", "1", "1", "--json"))
    assert shown["source"] == UNIX
    asked(tmp_path, "jobs", "glue", "back", "1", "1")
    assert jobs.job_of(database, 1).settings.glue_source == UNIX
    with database.writing() as connection:
        connection.execute(older.values(source="1\r\n2", glue_type="GLUE_PYTHON"))
    shown = json.loads(asked(tmp_path, "jobs", "glue", "show", "1", "1", "--json"))
    assert shown["source"] == "1\r\n2", "other languages are as stored"
    database.close()
