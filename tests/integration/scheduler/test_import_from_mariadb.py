"""An XXL-Job database in a MariaDB that runs, and its dump: both become the same jobs, once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from typer.testing import CliRunner

from pipelines.base.command_options import user_name
from pipelines.database.database import Database
from pipelines.scheduler.commands.app import app
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.store import glue, jobs, people, results
from provision import servers
from tests.integration.alerting.stores import sqlite_address
from tests.integration.client.database_servers import mariadb

HOSTILE = "it's \\ a \"job\";\n-- 'INSERT INTO `x` VALUES (1);' /* 漢字 \x1a 😀"
SCHEMA = """
CREATE TABLE xxl_job_group (id int PRIMARY KEY AUTO_INCREMENT, app_name varchar(64) NOT NULL,
  title varchar(12) NOT NULL, address_type tinyint NOT NULL DEFAULT 0, address_list text,
  update_time datetime DEFAULT NULL);
CREATE TABLE xxl_job_info (id int PRIMARY KEY AUTO_INCREMENT, job_group int NOT NULL,
  job_desc varchar(255) NOT NULL, add_time datetime, update_time datetime, author varchar(64),
  alarm_email varchar(255), schedule_type varchar(50) NOT NULL DEFAULT 'NONE',
  schedule_conf varchar(128), misfire_strategy varchar(50) NOT NULL DEFAULT 'DO_NOTHING',
  executor_route_strategy varchar(50), executor_handler varchar(255), executor_param varchar(512),
  executor_block_strategy varchar(50), executor_timeout int NOT NULL DEFAULT 0,
  executor_fail_retry_count int NOT NULL DEFAULT 0, glue_type varchar(50) NOT NULL,
  glue_source mediumtext, glue_remark varchar(128), glue_updatetime datetime,
  child_jobid varchar(255), trigger_status tinyint NOT NULL DEFAULT 0,
  trigger_last_time bigint NOT NULL DEFAULT 0, trigger_next_time bigint NOT NULL DEFAULT 0);
CREATE TABLE xxl_job_log (id bigint PRIMARY KEY AUTO_INCREMENT, job_group int NOT NULL,
  job_id int NOT NULL, executor_address varchar(255), executor_handler varchar(255),
  executor_param varchar(512), executor_sharding_param varchar(20),
  executor_fail_retry_count int NOT NULL DEFAULT 0, trigger_time datetime,
  trigger_code int NOT NULL, trigger_msg text, handle_time datetime, handle_code int NOT NULL,
  handle_msg text, alarm_status tinyint NOT NULL DEFAULT 0,
  KEY I_trigger_time (trigger_time), KEY I_handle_code (handle_code));
CREATE TABLE xxl_job_logglue (id int PRIMARY KEY AUTO_INCREMENT, job_id int NOT NULL,
  glue_type varchar(50), glue_source mediumtext, glue_remark varchar(128) NOT NULL,
  add_time datetime, update_time datetime);
CREATE TABLE xxl_job_user (id int PRIMARY KEY AUTO_INCREMENT, username varchar(50) NOT NULL UNIQUE,
  password varchar(50) NOT NULL, role tinyint NOT NULL, permission varchar(255));
CREATE TABLE xxl_job_lock (lock_name varchar(50) PRIMARY KEY);
INSERT INTO xxl_job_lock VALUES ('schedule_lock');
INSERT INTO xxl_job_group VALUES (1,'shop','Shop',0,NULL,NOW()),
  (4,'bills','Bills',1,'http://10.0.0.4:9999/',NOW());
INSERT INTO xxl_job_logglue VALUES
  (1,9,'GLUE_SHELL','echo 1','first','2026-01-01 08:00:00','2026-01-01 08:00:00'),
  (2,9,'GLUE_SHELL','echo 2','second','2026-01-02 08:00:00','2026-01-02 08:00:00');
INSERT INTO xxl_job_user VALUES (1,'admin','e10adc3949ba59abbe56e057f20f883e',1,NULL),
  (2,'ann','e10adc3949ba59abbe56e057f20f883e',0,'4');
INSERT INTO xxl_job_log VALUES
  (501,1,7,'http://10.0.0.1:9999/','h','',NULL,0,'2026-01-01 08:00:00',200,'sent',
   '2026-01-01 08:00:09',200,'well',0),
  (502,1,7,'http://10.0.0.1:9999/','h','','1/3',0,'2026-01-01 09:00:00',200,'sent',NULL,0,NULL,0),
  (503,1,99,NULL,'h','',NULL,0,'2026-01-01 09:00:00',500,'none',NULL,0,NULL,0);
"""
JOB = (
    "INSERT INTO xxl_job_info (id,job_group,job_desc,author,schedule_type,schedule_conf,"
    "executor_route_strategy,executor_handler,executor_param,executor_block_strategy,glue_type,"
    "glue_source,child_jobid,trigger_status) VALUES (%s,%s,%s,'XXL','CRON',%s,'ROUND',%s,%s,"
    "'SERIAL_EXECUTION',%s,%s,%s,1)"
)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Their database: its address, and its dump."""
    with mariadb() as port:
        connection = pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True)
        with connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE xxl_job CHARACTER SET utf8mb4")
            cursor.execute("USE xxl_job")
            for statement in SCHEMA.split(";\n")[:-1]:
                cursor.execute(statement)
            cursor.execute(JOB, (7, 1, HOSTILE, "0 0 8 * * ?", "h", HOSTILE, "BEAN", "", "9"))
            cursor.execute(JOB, (8, 1, "skipped", "5x * * * * ?", "h", "", "BEAN", "", ""))
            cursor.execute(
                JOB, (9, 4, "shell", "0/5 * * * * ?", "", "", "GLUE_SHELL", "echo 2", "")
            )
        dump = tmp_path_factory.mktemp("dump") / "xxl_job.sql"
        program = servers.mariadb_dump()
        assert program is not None, servers.MARIADB_MISSING
        ask = [program, "--no-defaults", "-h127.0.0.1", f"-P{port}", "-uroot", "xxl_job"]
        with dump.open("wb") as out:
            subprocess.run(ask, stdout=out, check=True)
        yield f"mysql://root@127.0.0.1:{port}/xxl_job", dump


def imported(folder: Path, source: object, *words: str, code: int = 0) -> Any:
    command = ["jobs", "import", str(source), "--zone", "Asia/Shanghai", "--json", *words]
    done = CliRunner().invoke(app, [*command, "--database", sqlite_address(folder)])
    assert done.exit_code == code, (done.output, done.exception)
    return json.loads(done.output) if code == 0 else str(done.exception)


def stored(folder: Path) -> Any:
    database = Database.at(sqlite_address(folder))
    try:
        found = jobs.jobs_after(database)
        return (
            [(job.job_id, job.group_id, job.settings, job.is_active) for job in found],
            [[(v.source, v.remark) for v in glue.glue_of(database, j.job_id)] for j in found],
            [results.runs_of(database, job.job_id) for job in found],
            people.users(database),
        )
    finally:
        database.close()


def test_a_dump_and_its_server_become_the_same_jobs(
    theirs: tuple[str, Path], tmp_path: Path
) -> None:
    folders: list[Any] = []
    for source in theirs:
        folder = tmp_path / str(len(folders))
        folder.mkdir()
        output = imported(folder, source, "--apply", "--history")
        assert (output["is_done"], output["runs"]) == (True, 2)
        folders.append(stored(folder))
    assert folders[0] == folders[1]
    found, versions, runs, users = folders[0]
    titles = {settings.title: (number, settings) for number, _, settings, _ in found}
    number, settings = titles[HOSTILE]
    assert (settings.parameters, settings.zone) == (HOSTILE, "Asia/Shanghai")
    assert settings.children == (titles["shell"][0],)
    assert titles["skipped"][1].schedule_kind == "NONE"
    assert not any(is_active for *_, is_active in found), "both would run them"
    assert versions[titles["shell"][0] - 1] == [("echo 2", "second"), ("echo 1", "first")]
    assert [(run.state, run.shard_total) for run in runs[number - 1]] == [
        (RunState.LOST, 3), (RunState.DONE, 1)
    ]  # fmt: skip
    assert {(user.name, user.is_admin) for user in users} == {
        ("admin", True), ("ann", False), (user_name(), True)
    }  # fmt: skip


def test_a_preview_changes_nothing_and_a_repeated_import_adds_what_is_new(
    theirs: tuple[str, Path], tmp_path: Path
) -> None:
    address, dump = theirs
    preview = imported(tmp_path, dump)
    assert [(one["kind"], one["is_new"]) for one in preview["took"]] == [
        ("group", True), ("group", True), ("job", True), ("job", True), ("job", True),
        ("user", True), ("user", True),
    ]  # fmt: skip
    output = " ".join(f"{one['subject']}: {one['told']}" for one in preview["remarks"])
    assert "job 8: without a schedule" in output
    assert "users: passwords cannot be taken over" in output
    assert stored(tmp_path) == ([], [], [], [])

    imported(tmp_path, dump, "--apply", "--start", "--history")
    before = stored(tmp_path)
    assert [is_active for *_, is_active in before[0]] == [True, False, True]
    again = imported(tmp_path, address, "--apply", "--start", "--history")
    assert not any(one["is_new"] for one in again["took"])
    assert (again["runs"], stored(tmp_path)) == (0, before)


def test_what_is_no_such_database_is_said(theirs: tuple[str, Path], tmp_path: Path) -> None:
    address, _ = theirs
    nowhere = address.rpartition("/")[0] + "/nowhere"
    assert "cannot be read" in imported(tmp_path, nowhere, code=1)
    assert "import must be mysql://" in imported(tmp_path, "postgresql://x/y", code=1)
    assert "a file that can be read" in imported(tmp_path, tmp_path / "none.sql", code=1)
    other = tmp_path / "other.sql"
    other.write_text("CREATE TABLE t (a int); INSERT INTO t VALUES (1);")
    assert "a dump with rows of" in imported(tmp_path, other, code=1)
