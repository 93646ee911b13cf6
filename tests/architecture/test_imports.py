"""Who may import whom, and which modules stay pure.

The rules between rooms are import-linter contracts in pyproject.toml; purity of single modules is
read from their syntax here.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.architecture.source_tree import PACKAGES, ROOT, Module, modules, report

# Bytes in, values out; time arrives as now_ms. Folders end in "/".
PURE = (
    "engine/foundation/errors.py",
    "engine/foundation/limits.py",
    "engine/foundation/observing.py",
    "engine/foundation/units.py",
    "engine/protocol/",
    "engine/raft/core.py",
    "engine/raft/electing.py",
    "engine/raft/events.py",
    "engine/raft/following.py",
    "engine/raft/frames.py",
    "engine/raft/leading.py",
    "engine/raft/log_shape.py",
    "engine/raft/members.py",
    "engine/raft/messages.py",
    "engine/raft/state.py",
    "engine/raft/working.py",
    "engine/store/record_reading.py",
    "engine/client/consuming/allocation.py",
    "engine/client/consuming/process_queue.py",
    "engine/telemetry/broker_tables.py",
    "engine/telemetry/columns.py",
    "engine/telemetry/group_tables.py",
    "engine/telemetry/member_tables.py",
    "engine/telemetry/tables.py",
    "pipelines/alerting/alerts.py",
    "pipelines/alerting/conditions.py",
    "pipelines/alerting/step.py",
    "pipelines/alerting/evaluating.py",
    "pipelines/alerting/grouping.py",
    "pipelines/alerting/life_cycle.py",
    "pipelines/alerting/present_rows.py",
    "pipelines/alerting/matchers.py",
    "pipelines/alerting/outbox/outcomes.py",
    "pipelines/alerting/alert_context.py",
    "pipelines/alerting/routing.py",
    "pipelines/alerting/rule_tests.py",
    "pipelines/alerting/sql.py",
    "pipelines/alerting/rules.py",
    "pipelines/alerting/silences.py",
    "pipelines/alerting/wait_clock.py",
    "pipelines/alerting/store/crowds.py",
    "pipelines/alerting/texts.py",
    "pipelines/alerting/rule_tables.py",
    "pipelines/reading/catalogue.py",
    "pipelines/rules/",
    "pipelines/scheduler/cron.py",
    "pipelines/scheduler/executor/job_queue.py",
    "pipelines/scheduler/executor/log_pages.py",
    "pipelines/scheduler/executor/reports.py",
    "pipelines/scheduler/scripts.py",
    "pipelines/scheduler/importing/mysql_dump.py",
    "pipelines/scheduler/importing/xxl_job.py",
    "pipelines/scheduler/job_settings.py",
    "pipelines/scheduler/schedules.py",
    "pipelines/scheduler/roles.py",
    "pipelines/scheduler/routing.py",
    "pipelines/scheduler/run_life.py",
    "pipelines/scheduler/time_ring.py",
    "pipelines/scheduler/workflows.py",
    "pipelines/scheduler/wire/addresses.py",
    "pipelines/scheduler/wire/fields.py",
    "pipelines/scheduler/wire/messages.py",
    "pipelines/scheduler/wire/tokens.py",
)
IMPURE = {"asyncio", "os", "random", "socket", "threading", "time", "subprocess", "pathlib", "uuid"}


def test_rooms_import_only_what_the_house_allows() -> None:
    linter = Path(sys.prefix) / "bin" / "lint-imports"
    done = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_pure_modules_import_no_clock_no_loop_no_system() -> None:
    findings = [
        f"{module.name}:{line} imports {imported}"
        for module in modules("engine", "pipelines")
        if module.name.startswith(PURE)
        for imported, line in module.imports()
        if imported.split(".")[0] in IMPURE
    ]
    assert not findings, report(findings)


def test_every_pure_module_exists() -> None:
    missing = [name for name in PURE if not (ROOT / name).exists()]
    assert not missing, f"renamed without its rule: {missing}"


def test_rows_are_appended_to_delta_through_one_door() -> None:
    doors = {"pipelines/lake/table_writes.py", "engine/telemetry/shipper/bronze_table.py"}
    findings = [
        f"{module.name} calls write_deltalake: use pipelines.lake.table_writes, which leaves the "
        "log alone and names the table in its errors"
        for module in modules(*PACKAGES)
        if module.name not in doors and "write_deltalake" in module.text
    ]
    assert not findings, report(findings)


def test_the_command_line_imports_a_room_only_when_its_command_runs() -> None:
    heavy = (
        "pyspark",
        "delta",
        "deltalake",
        "pyarrow",
        "polars",
        "dash",
        "great_expectations",
        "IPython",
    )
    script = (
        "import sys, tidemark\n"
        "try:\n    tidemark.app(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print(sorted(set(sys.modules) & set({heavy!r})))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert "pipeline" in done.stdout


def test_a_short_question_to_the_database_loads_no_migrations_and_no_pandas(tmp_path: Path) -> None:
    script = (
        "import sys, tidemark\n"
        "try:\n    tidemark.app(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print(sorted(set(sys.modules) & {'alembic', 'pandas', 'pyspark'}))\n"
    )
    address = f"sqlite:///{tmp_path / 'tidemark.db'}"
    question = ("alerts", "silences", "--lake", str(tmp_path), "--database", address)
    answers = [
        subprocess.run(
            [sys.executable, "-c", script, *question],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for _ in range(2)  # The first one makes the tables.
    ]
    assert answers == [
        ["nothing is silenced", "['alembic']"],
        ["nothing is silenced", "[]"],
    ]


def test_imports_inside_functions_are_seen() -> None:
    seen = dict(Module("tidemark.py").imports())
    assert "importlib" in seen
