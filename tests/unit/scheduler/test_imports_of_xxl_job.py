"""A dump of an XXL-Job database: its rows are read as they were, and become jobs or a reason."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.foundation.errors import ConfigError
from pipelines.scheduler.importing.mysql_dump import tables_of
from pipelines.scheduler.importing.xxl_job import Taking, taken_run, taking
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.schedules import zone_of

SHANGHAI = zone_of("Asia/Shanghai")
DUMP = r"""
-- MariaDB dump 10.19; Host: localhost
/*!40101 SET @saved_cs_client = @@character_set_client */;
DROP TABLE IF EXISTS `t`;
CREATE TABLE `t` (
  `id` int(11) NOT NULL AUTO_INCREMENT COMMENT 'a (number), `of` no use',
  `Name` varchar(64) DEFAULT 'x,y',
  `price` decimal(8,2) DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `by_name` (`Name`)
) ENGINE=InnoDB;
LOCK TABLES `t` WRITE;
INSERT INTO `t` VALUES (1,'it\'s; -- (\n)',1.50),(2,'a ''quote''',NULL),
  (3,_binary 'b\\',-7);
INSERT INTO shop.t (`price`,`id`) VALUES (0x3432,4);
REPLACE INTO `other` VALUES (1);
UNLOCK TABLES;
"""


def test_rows_are_read_as_they_were_written() -> None:
    assert tables_of(DUMP, {"t"}) == {
        "t": [
            {"id": "1", "name": "it's; -- (\n)", "price": "1.50"},
            {"id": "2", "name": "a 'quote'", "price": None},
            {"id": "3", "name": "b\\", "price": "-7"},
            {"price": "42", "id": "4"},
        ]
    }


@pytest.mark.parametrize(
    "dump",
    [
        "INSERT INTO t VALUES (1)",
        "CREATE TABLE t (a int); INSERT INTO t VALUES (1,2)",
        "INSERT INTO t (a) SELECT 1",
        "INSERT INTO t (a) VALUES ('open",
    ],
)
def test_what_cannot_be_read_is_an_error_and_no_guess(dump: str) -> None:
    with pytest.raises(ConfigError):
        tables_of(dump, {"t"})


@given(st.lists(st.tuples(st.text(max_size=20), st.none() | st.integers()), min_size=1, max_size=3))
def test_any_text_comes_back(rows: list[tuple[str, int | None]]) -> None:
    escapes = {"\\": "\\\\", "'": "\\'", "\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z"}
    written = ",".join(
        "('" + "".join(escapes.get(char, char) for char in text) + "',"
        + ("NULL" if number is None else str(number)) + ")"
        for text, number in rows
    )  # fmt: skip
    dump = f"CREATE TABLE t (a text, b int); INSERT INTO t VALUES {written};"
    texts = [(text, None if number is None else str(number)) for text, number in rows]
    assert [(row["a"], row["b"]) for row in tables_of(dump, {"t"})["t"]] == texts


def a_group(**changed: str | None) -> dict[str, str | None]:
    return {"id": "1", "app_name": "shop", "title": "Shop", "address_type": "0"} | changed


def a_job(**changed: str | None) -> dict[str, str | None]:
    fields = {
        "id": "7", "job_group": "1", "job_desc": "bills", "author": "XXL", "alarm_email": "",
        "schedule_type": "CRON", "schedule_conf": "0 0 0 * * ? *", "misfire_strategy": "DO_NOTHING",
        "executor_route_strategy": "FIRST", "executor_handler": "bill", "executor_param": "x",
        "executor_block_strategy": "SERIAL_EXECUTION", "executor_timeout": "30",
        "executor_fail_retry_count": "2", "glue_type": "BEAN", "glue_source": "",
        "child_jobid": "", "trigger_status": "1",
    }  # fmt: skip
    return fields | changed


def taken(zone: Any = SHANGHAI, **tables: list[dict[str, str | None]]) -> Taking:
    groups = {"xxl_job_group": [a_group()]}
    return taking(groups | {f"xxl_job_{name}": rows for name, rows in tables.items()}, zone)


def remarks(found: Taking) -> list[str]:
    return [f"{one.subject}: {one.text}" for one in found.remarks]


def test_a_job_keeps_its_settings() -> None:
    found = taken(info=[a_job(), a_job(id="8", child_jobid="7,9")])
    [job, parent] = found.jobs
    imported = job.settings
    assert (imported.title, imported.handler, imported.parameters) == ("bills", "bill", "x")
    assert (imported.timeout_s, imported.retries, imported.route) == (30, 2, "FIRST")
    assert (imported.schedule_text, imported.zone) == ("0 0 0 * * ? *", "Asia/Shanghai")
    assert job.was_running
    assert parent.children == (7,)
    assert remarks(found) == ["job 8: without children that are not: [9]"]


def test_a_child_that_would_begin_its_job_again_is_left_out_with_the_path() -> None:
    numbers = {"7": "8", "8": "9", "9": "7,9"}
    found = taken(info=[a_job(id=one, child_jobid=named) for one, named in numbers.items()])
    assert [job.children for job in found.jobs] == [(8,), (9,), ()]
    assert remarks(found) == [
        "job 9: without child 7, which begins it again: 9 → 7 → 8 → 9",
        "job 9: without child 9, which begins it again: 9 → 9",
    ]


def test_jobs_of_2_2_and_of_3_5_are_read_too() -> None:
    old = a_job(
        schedule_type=None, schedule_conf=None, misfire_strategy=None, job_cron="0 0 1 * * ?"
    )
    new = a_job(id="8", job_desc=None, name="bills")
    found = taken(info=[old, new])
    assert [job.settings.schedule_kind for job in found.jobs] == ["CRON", "CRON"]
    assert found.jobs[0].settings.schedule_text == "0 0 1 * * ?"
    assert found.jobs[1].settings.title == "bills"
    three_five = taking({"xxl_job_group": [a_group(title=None, name="Shop")]}, SHANGHAI)
    assert three_five.groups[0].title == "Shop"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"schedule_conf": "0 0 0 15W,20 * ?"}, "without a schedule"),
        ({"schedule_conf": "0 0 0 30 2 ?"}, "without a schedule"),
        ({"schedule_type": "FIX_RATE", "schedule_conf": "soon"}, "without a schedule"),
        ({"misfire_strategy": "SOMETIMES"}, "misfire is 'DO_NOTHING' here"),
        ({"executor_route_strategy": "NEAREST"}, "route is 'ROUND' here"),
        ({"executor_timeout": "-1"}, "timeout_s is 0 here"),
        ({"alarm_email": "ops@shop"}, "its alarms went to ops@shop"),
        ({"executor_handler": ""}, "left out"),
        ({"child_jobid": "a"}, "left out"),
        ({"job_group": "5"}, "left out: no group 5"),
    ],
)
def test_what_is_not_taken_over_has_its_reason(changed: dict[str, str | None], why: str) -> None:
    found = taken(info=[a_job(**changed)])
    assert [one for one in remarks(found) if one.startswith("job 7") and why in one]
    assert len(found.jobs) == (0 if why.startswith("left out") else 1)


def test_rules_of_a_zone_with_summer_time_are_said_to_differ() -> None:
    said = remarks(taken(zone_of("Europe/Berlin"), info=[a_job()]))
    assert [one for one in said if "where the clock of Europe/Berlin is set" in one]
    assert not remarks(taken(info=[a_job()]))


def test_sources_come_with_their_versions_the_oldest_first() -> None:
    glue = {"job_id": "7", "glue_type": "GLUE_SHELL", "glue_remark": "r",
            "update_time": "2026-01-01 08:00:00"}  # fmt: skip
    rows = [
        glue | {"id": "2", "glue_source": "echo 2"},
        glue | {"id": "1", "glue_source": "echo 1"},
    ]
    found = taken(info=[a_job(glue_type="GLUE_SHELL", glue_source="echo 2")], logglue=rows)
    [job] = found.jobs
    assert [version.source for version in job.glue] == ["echo 1", "echo 2"]
    assert job.glue[0].changed_ms == 1_767_225_600_000
    assert job.settings.glue_source == "echo 2"


def test_a_shell_source_comes_without_carriage_returns_and_every_other_as_it_is() -> None:
    row = {"job_id": "7", "glue_source": "echo 1\r\n", "update_time": "2026-01-01 08:00:00"}
    rows = [
        row | {"id": "1", "glue_type": "GLUE_SHELL"},
        row | {"id": "2", "glue_type": "GLUE_PHP", "glue_source": "\ufeff<?php\r\n"},
    ]
    info = a_job(glue_type="GLUE_SHELL", glue_source="echo 2\r\n", executor_param="a\r\nb")
    [job] = taken(info=[info], logglue=rows).jobs
    assert [version.source for version in job.glue] == ["echo 1\n", "\ufeff<?php\r\n"]
    assert (job.settings.glue_source, job.settings.parameters) == ("echo 2\n", "a\r\nb")


def test_groups_have_their_addresses_and_users_their_rights_but_no_password() -> None:
    groups = [
        a_group(),
        a_group(id="2", app_name="b", address_type="1",
                address_list="http://10.0.0.1:9999/,ftp://x", access_token="short"),
    ]  # fmt: skip
    users = [
        {"id": "1", "username": "admin", "password": "e10adc", "role": "1", "permission": None},
        {"id": "2", "username": "ann", "password": "x", "role": "0", "permission": "2,9"},
        {"id": "3", "username": "å", "password": "x", "role": "0", "permission": ""},
    ]
    found = taking({"xxl_job_group": groups, "xxl_job_user": users}, SHANGHAI)
    assert [group.manual_addresses for group in found.groups] == [None, ("http://10.0.0.1:9999/",)]
    assert [(user.name, user.is_admin, user.their_groups) for user in found.users] == [
        ("admin", True, ()), ("ann", False, (2,))
    ]  # fmt: skip
    said = remarks(found)
    assert [one.split(":")[0] for one in said] == ["group 2", "group 2", "user 'å'", "users"]
    assert "tidemark scheduler users password" in said[-1]


@pytest.mark.parametrize(
    ("trigger", "handle", "state"),
    [("200", "200", RunState.DONE), ("200", "500", RunState.FAILED), ("500", "0", RunState.REFUSED),
     ("200", "0", RunState.LOST)],
)  # fmt: skip
def test_a_run_of_their_history_has_a_state_of_ours(
    trigger: str, handle: str, state: RunState
) -> None:
    row = {"id": "5", "job_id": "7", "trigger_code": trigger, "handle_code": handle,
           "trigger_time": "2026-01-01 08:00:00", "executor_sharding_param": "1/3"}  # fmt: skip
    run = taken_run(row, SHANGHAI)
    assert run is not None
    assert (run.state, run.planned_ms) == (state, 1_767_225_600_000)
    assert (run.shard_index, run.shard_total) == (1, 3)
    assert taken_run(row | {"trigger_time": None}, SHANGHAI) is None
