"""Our own jobs: what a run carries out, and that who edits jobs cannot name files or programs."""

from __future__ import annotations

import importlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine.foundation.errors import ConfigError
from pipelines.database.database import Database
from pipelines.platform_jobs import handlers
from pipelines.platform_jobs.installing import APP, install
from pipelines.platform_jobs.job_commands import JOBS, Settings, command_of, read_settings
from pipelines.scheduler.commands.context import acting
from pipelines.scheduler.executor.handlers import handlers_in
from pipelines.scheduler.service import JobService
from pipelines.scheduler.store.jobs import edit_job, job_of

FIRE = datetime(2026, 3, 2, 0, 20, tzinfo=UTC)
HERE = Settings(lake="/srv/lake")
NAME = "lag-daily/20260301T000000Z-86400s/1"
CLUSTER = Settings(
    lake="s3://b/lake",
    master="spark://m:7077",
    address="10.0.0.5",
    conf=("spark.executor.memory=2g",),
    receivers="/etc/receivers.toml",
    objectives="/etc/objectives.toml",
    pages="https://tidemark.example",
    database="postgresql://db/t",
)


def test_a_report_is_about_what_was_over_when_its_run_was_planned() -> None:
    command = command_of("lag-report", "period=daily zone=Europe/Berlin", HERE, FIRE)
    assert command == [
        *("reports", "run", "--lake", "/srv/lake", "--period", "daily"),
        *("--at", "2026-03-02T00:20:00Z", "--zone", "Europe/Berlin", "--master", "local[2]"),
    ]


def test_a_report_is_made_again_by_its_name_from_its_cut_or_from_the_newest() -> None:
    again = command_of("lag-report", f"again={NAME}", HERE, FIRE)
    assert again[4:] == ["--again", NAME, "--master", "local[2]"]
    newest = command_of("lag-report", f"again={NAME} newest=yes", HERE, FIRE)
    assert newest[4:] == ["--again", NAME, "--newest", "--master", "local[2]"]
    of_this_day = command_of("lag-report", "newest=yes", HERE, FIRE)
    assert of_this_day[-3:] == ["--newest", "--master", "local[2]"]


def test_a_spark_job_is_handed_to_the_cluster_that_the_operator_named() -> None:
    command = command_of("lag-report", "send=team,boss", CLUSTER, FIRE)
    command_line = " ".join(command)
    assert (
        "--master spark://m:7077 --address 10.0.0.5 --conf spark.executor.memory=2g" in command_line
    )
    assert "--objectives /etc/objectives.toml --pages https://tidemark.example" in command_line
    assert command_line.endswith(
        "--database postgresql://db/t --receivers /etc/receivers.toml --send team --send boss"
    )
    checked = command_of("expectations", "", CLUSTER, FIRE)
    assert " ".join(checked).endswith(
        "--master spark://m:7077 --address 10.0.0.5 --conf spark.executor.memory=2g"
    )


def test_a_backtest_is_of_the_days_before_its_run() -> None:
    command = command_of("backtest", "rules=ours,alerts days=2", HERE, FIRE)
    assert command[1] == "ours,alerts"
    assert command[-4:] == ["--from", "2026-02-28T00:20:00Z", "--to", "2026-03-02T00:20:00Z"]


@pytest.mark.parametrize(
    ("handler", "parameters"),
    [
        ("lag-report", "period=yearly"),
        ("lag-report", "lake=/etc"),
        ("lag-report", "--conf spark.jars=evil.jar"),
        ("lag-report", "zone=--conf"),
        ("lag-report", "send=../../x"),
        ("lag-report", "send=team"),
        ("lag-report", "period=daily period=weekly"),
        ("lag-report", "again=../../etc/passwd"),
        ("lag-report", "again=--conf"),
        ("lag-report", "again=lag-daily/20260301T000000Z-86400s/1;rm"),
        ("lag-report", f"again={NAME} period=daily"),
        ("lag-report", f"again={NAME} zone=UTC"),
        ("lag-report", "newest=please"),
        ("backtest", "rules=/etc/passwd"),
        ("backtest", "days=0"),
        ("backtest", "days=9999999"),
        ("table-maintenance", "days=1"),
        ("expectations", "fail_on=never"),
    ],
)
def test_parameters_choose_among_what_is_known_and_name_nothing_else(
    handler: str, parameters: str
) -> None:
    wrong_send = handler == "lag-report" and parameters == "send=team"
    with pytest.raises(ConfigError):
        command_of(handler, parameters, HERE if wrong_send else CLUSTER, FIRE)


def test_the_module_has_a_handler_for_each_job() -> None:
    assert set(handlers_in(handlers)) == set(JOBS)


def test_an_executor_that_is_started_with_the_earlier_module_goes_on_and_is_warned() -> None:
    with pytest.warns(DeprecationWarning, match="pipelines.platform_jobs.handlers"):
        earlier = importlib.import_module("pipelines.own_jobs.handlers")
    assert handlers_in(earlier) == handlers_in(handlers)


def test_settings_say_what_is_wrong_with_them(tmp_path: Path) -> None:
    file = tmp_path / "own-jobs.toml"
    file.write_text('lake = "/srv/lake"\nmaster = "local[4]"\n')
    assert read_settings(str(file)).master == "local[4]"
    for text in ("", 'lake = "x"\nlakes = "y"', "lake = 5", "lake"):
        file.write_text(text)
        with pytest.raises(ConfigError, match="TIDEMARK_OWN_JOBS"):
            read_settings(str(file))
    with pytest.raises(ConfigError, match="TIDEMARK_OWN_JOBS"):
        read_settings(None)


def test_jobs_are_installed_once_and_what_somebody_has_changed_stays(tmp_path: Path) -> None:
    state = Database.in_folder(tmp_path)
    try:
        service = JobService(state, acting(state, "ann"), lambda: 1)
        made = install(service, zone="Europe/Berlin", send=["team"])
        assert len(made) == 8
        assert all(one.is_new for one in made)
        daily = next(one for one in made if one.title == "lag report, daily")
        job = job_of(state, daily.job_id)
        assert job.is_active
        assert job.settings.parameters == "period=daily zone=Europe/Berlin send=team"
        changed = replace(job.settings, schedule_text="0 0 6 * * ?")
        edit_job(state, daily.job_id, changed, service.change)
        again = install(service)
        assert [(one.title, one.job_id) for one in again] == [
            (one.title, one.job_id) for one in made
        ]
        assert not any(one.is_new for one in again)
        assert job_of(state, daily.job_id).settings.schedule_text == "0 0 6 * * ?"
        assert [one.app_name for one in service.groups()] == [APP]
        assert len(service.jobs_after()) == 8
    finally:
        state.close()
