"""The pages of jobs in a browser, with a real centre and a real executor behind them.

Row F8.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from dashboards.access.visitors import Visitors
from dashboards.reads.job_database import JobDatabase
from pipelines.database.clock import machine_ms
from pipelines.database.database import Database
from pipelines.lake.lake import Lake
from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.passwords import is_password
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.store import glue, groups, jobs, results, sessions
from pipelines.scheduler.store.audit import Change, audit_of
from tests.dashboards import jobs_shown
from tests.dashboards.conftest import FRESH
from tests.dashboards.served import Visit, Windows, serving, visiting
from tests.integration.scheduler.parties import CONTEXT, MODULE, TOKEN

COMMAND = Path(sys.prefix) / "bin" / "tidemark"
ROOT = Path(__file__).parents[2]
WITHIN_MS = 30_000
NEW_PASSWORD = "a long and secret word"
NEW_SOURCE = "import time\nprint('second source')\n"


@contextmanager
def a_process(*words: str, variable: str, log: Path) -> Iterator[str]:
    """A process of ours that says in one line that it is ready; ended by SIGTERM."""
    with log.open("ab") as errors:
        running = subprocess.Popen(
            [COMMAND, *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=os.environ | {variable: TOKEN},
            cwd=ROOT,
            text=True,
        )
    assert running.stdout is not None
    try:
        yield running.stdout.readline()
    finally:
        running.terminate()
        running.wait(30)
        running.stdout.close()


@contextmanager
def a_house(folder: Path) -> Iterator[tuple[Database, dict[str, int]]]:
    """A centre and an executor at work, and jobs of two groups; Ann has those of one."""
    address = jobs_shown.address_of(folder)
    database = Database.at(address)
    now = Change("root", machine_ms())
    mine, other = (groups.add_group(database, name, now) for name in ("tests", "others"))
    jobs_shown.add_people(database, ann=mine)

    def job(group_id: int, title: str, **settings: str) -> int:
        return jobs.add_job(database, group_id, JobSettings(title=title, **settings), now)

    each_day = {"schedule_kind": "CRON", "schedule_text": "0 0 4 * * ?"}
    numbers = {
        "waits": job(mine, "Waits for its end", handler="waits-for-ever", **each_day),
        "script": job(mine, "A script", glue_type="GLUE_PYTHON", glue_source="print('first')\n"),
        "other": job(other, "Of others", handler="demo"),
    }
    jobs.start_job(database, numbers["waits"], now)
    with ExitStack() as stack:
        centre = ("scheduler", "run", "--port", "0", "--database", address)
        ready = stack.enter_context(
            a_process(*centre, variable="TIDEMARK_SCHEDULER_TOKEN", log=folder / "centre.log")
        )
        at = ready.split("address=")[1].strip().rstrip("/") + CONTEXT
        executor = ("executor", "--admin", at, "--app", "tests", "--module", MODULE)
        stack.enter_context(
            a_process(
                *(*executor, "--port", "0", "--home", str(folder / "x"), "--scripts"),
                variable="TIDEMARK_JOBS_TOKEN",
                log=folder / "executor.log",
            )
        )
        yield database, numbers
    database.close()


@contextmanager
def dashboard(lake: Lake, folder: Path) -> Iterator[str]:
    kept = JobDatabase(jobs_shown.address_of(folder))
    visitors = Visitors(kept, is_local=True)
    with serving(lake, FRESH, visitors=visitors, executor_token=TOKEN) as origin:
        yield origin
    kept.close()


def sign_in(visit: Visit, name: str) -> None:
    page = visit.page
    page.get_by_label("name").fill(name)
    page.get_by_label("password").fill(jobs_shown.PASSWORD)
    page.get_by_label("password").press("Enter")
    page.locator("#signed-in-name", has_text=name).wait_for()


def do(page: Page, link: str, button: str) -> None:
    """Open the panel of a change, read what it will do, and have it done by a double click."""
    page.get_by_role("link", name=link, exact=True).first.click()
    panel = page.locator("#change")
    panel.get_by_role("button", name=button, exact=True).dblclick()
    panel.get_by_role("heading", name="Done").wait_for()


def edit_and_roll_back(page: Page, address: str) -> None:
    """Give a job another source, and the one that it had again."""
    page.goto(address)
    page.get_by_role("link", name="edit the source").click()
    panel = page.locator("#change")
    panel.get_by_label("source", exact=True).fill(NEW_SOURCE)
    panel.get_by_label("remark").fill("another one")
    panel.get_by_role("button", name="Preview").click()
    expect(panel).to_contain_text("+print('second source')")
    expect(panel.get_by_role("button", name="Change the source")).to_be_enabled()
    panel.get_by_label("remark").fill("another one!")
    expect(panel.get_by_role("button", name="Change the source")).to_be_disabled()
    panel.get_by_role("button", name="Preview").click()
    panel.locator('[data-step="do"]:enabled').click()
    panel.get_by_role("heading", name="Done").wait_for()
    page.get_by_role("link", name="Close").click()
    page.get_by_role("link", name="roll back").click()
    panel.get_by_label("remark").fill("the first was right")
    panel.get_by_role("button", name="Preview").click()
    panel.locator('[data-step="do"]:enabled').click()
    panel.get_by_role("heading", name="Done").wait_for()


@pytest.mark.timeout(300)
def test_a_job_is_looked_at_run_followed_killed_paused_edited_and_rolled_back(
    nothing: Lake, tmp_path: Path, windows: Windows
) -> None:
    with (
        a_house(tmp_path) as (database, numbers),
        dashboard(nothing, tmp_path) as origin,
        visiting(windows, origin, fresh=True) as visit,
    ):
        page = visit.page
        page.goto(f"{origin}/jobs")
        expect(page.locator("body")).not_to_contain_text("Waits for its end")
        sign_in(visit, "ann")
        page.goto(f"{origin}/jobs/executors")
        listed = page.locator("#jobs-body")
        expect(listed).to_contain_text("http://127.0.0.1:", timeout=WITHIN_MS)
        expect(listed).not_to_contain_text("others")
        page.goto(f"{origin}/jobs")
        expect(listed).to_contain_text("Waits for its end")
        expect(listed).not_to_contain_text("Of others")
        page.locator("#jobs-search").fill("WAITS")
        page.locator("#jobs-search").press("Enter")
        expect(listed).to_contain_text("1 to 1 of 1")
        page.get_by_role("link", name="Waits for its end").click()
        expect(listed).to_contain_text("0 0 4 * * ?")

        do(page, "run now", "Run it now")
        [run] = results.runs_of(database, numbers["waits"])
        page.get_by_role("link", name="Go there").click()
        log = page.locator("#run-log")
        expect(log).to_contain_text("will not come back", timeout=WITHIN_MS)
        expect(page.locator("#run-log-said")).to_have_text("It goes on.")
        page.get_by_role("link", name="kill it").click()
        expect(page.locator("#change")).to_contain_text("is asked to end it")
        do(page, "kill it", "Kill it")
        expect(page.locator("#run-log-said")).to_have_text("The run has ended.", timeout=WITHIN_MS)
        expect(log).to_contain_text("and tidies up")
        assert log.inner_text().count("will not come back") == 1, "each line once"
        expect(page.locator("#jobs-run")).to_contain_text("failed")
        assert results.run_of(database, run.log_id).state is RunState.FAILED

        do(page, "pause", "Pause it")
        expect(page.locator("#jobs-head")).to_contain_text("paused")
        assert not jobs.job_of(database, numbers["waits"]).is_active

        edit_and_roll_back(page, f"{origin}/jobs/{numbers['script']}/source")
        settings = jobs.job_of(database, numbers["script"]).settings
        assert settings.glue_source == "print('first')\n"
        kept = [one.source for one in glue.glue_of(database, numbers["script"])]
        assert kept == ["print('first')\n", NEW_SOURCE, "print('first')\n"]

        page.goto(f"{origin}/jobs/{numbers['script']}")
        do(page, "run now", "Run it now")
        page.get_by_role("link", name="Go there").click()
        expect(page.locator("#run-log-said")).to_have_text("The run has ended.", timeout=WITHIN_MS)
        expect(log).to_contain_text("first")

        page.goto(f"{origin}/jobs/{numbers['other']}")
        expect(page.locator("#jobs-body")).to_contain_text("may not see the jobs")
        page.goto(f"{origin}/jobs/audit")
        expect(page.locator("#jobs-body")).to_contain_text("may not see the audit")
        page.get_by_role("button", name="sign out").click()
        page.locator("#sign-in-name").wait_for()
        sign_in(visit, "root")
        expect(page.get_by_role("row").filter(has_text="annkillrun:1")).to_have_count(1)
        done = [(one.author, one.action) for one in audit_of(database) if one.author == "ann"]
        assert done == [
            ("ann", action)
            for action in ("sign out", "run", "edit", "edit", "pause", "kill", "run", "sign in")
        ]
        assert visit.faults == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_of_jobs_have_names_for_all_that_is_there_and_no_fault(
    nothing: Lake, tmp_path: Path, windows: Windows, theme: str
) -> None:
    database = jobs_shown.a_database(tmp_path)
    numbers = jobs_shown.store_jobs(database)
    visitors = jobs_shown.visitors_of(jobs_shown.address_of(tmp_path))
    with (
        serving(nothing, FRESH, visitors=visitors) as origin,
        visiting(windows, origin, theme=theme, fresh=True) as visit,
    ):
        page = visit.page
        page.goto(f"{origin}/jobs/{numbers['hostile']}?do=edit")
        page.locator("#sign-in-name").wait_for()
        sign_in(visit, "root")
        panel = page.locator("#change")
        expect(panel.get_by_label("title")).to_have_value(jobs_shown.HOSTILE)
        heading = panel.get_by_role("heading", name=f"Change job {numbers['hostile']}")
        expect(heading).to_be_focused()
        unnamed = page.evaluate(
            """() => [...document.querySelectorAll("main input, main select, main textarea")]
                .filter((one) => one.type !== "hidden" && !one.labels.length)
                .map((one) => one.outerHTML)"""
        )
        assert unnamed == []
        panel.get_by_label("zone").fill("Mars/Olympus")
        panel.get_by_role("button", name="Preview").press("Enter")
        wrong = panel.locator("#field-zone-wrong")
        expect(wrong).to_contain_text("IANA")
        expect(panel.get_by_label("zone")).to_have_attribute("aria-invalid", "true")
        expect(panel.get_by_label("zone")).to_have_value("Mars/Olympus")
        page.keyboard.press("Tab")
        page.go_back()
        visit.open("/jobs/users")
        page.get_by_role("link", name="new user").click()
        panel.get_by_label("name", exact=True).fill("bob")
        panel.get_by_label("groups").fill("media")
        panel.get_by_label("password").fill(NEW_PASSWORD)
        panel.get_by_role("button", name="Preview").click()
        expect(panel.get_by_role("cell", name="media")).to_be_visible()
        expect(panel.get_by_label("password")).to_have_value(NEW_PASSWORD)
        panel.get_by_role("button", name="Make it").click()
        expect(panel.get_by_role("status")).to_contain_text("it is done")
        assert is_password(NEW_PASSWORD, sessions.kept_password(database, "bob"))
        for path in (
            *("/jobs", "/jobs/executors", "/jobs/users", "/jobs/audit"),
            *(f"/jobs/{numbers['convert']}", "/jobs/executors?do=group-edit&name=media"),
        ):
            visit.open(path)
            assert page.locator("h1").count() == 1
            width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert width <= 0, f"{path} is wider than its window"
        assert page.locator("main img").count() == 0, "names are no markup"
        assert visit.faults == []
    visitors.database.close()
    database.close()
