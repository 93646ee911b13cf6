"""The pages of jobs, asked by hand over HTTP: who sees what, and what is done to whom, and once.

Row F8.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import sqlalchemy as sa

from dashboards.access.security import BODY_BYTES_MAX
from dashboards.access.visitors import COOKIE
from dashboards.actions.job_changes import ACTIONS
from dashboards.actions.previewed_changes import NEW_NOW
from pipelines.lake.lake import Lake
from pipelines.scheduler.page_queries import PageService
from pipelines.scheduler.roles import Actor
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.store import glue, jobs, people, results, tables
from tests.dashboards import jobs_shown
from tests.dashboards.house import OURS, House, at, reading, text

PAGES = (
    *("/jobs", "/jobs/1", "/jobs/3/source"),
    *("/jobs/executors", "/jobs/users", "/jobs/audit"),
)


class TestWhoSees:
    async def test_a_stranger_sees_the_sign_in_and_nothing_else(
        self, nothing: Lake, house: House
    ) -> None:
        async with reading(nothing, house) as stranger:
            for path in PAGES:
                page = await stranger.page(path)
                assert "sign-in-name" in page
                for secret in ("Lag report", "media", "lag-reports", "10.0.0.1", "convert"):
                    assert secret not in page, (path, secret)
            assert await stranger.log("/jobs/1", "?run=1") is None

    async def test_before_there_are_users_one_looks_at_this_machine_and_nowhere_else(
        self, nothing: Lake, house: House
    ) -> None:
        with house.database.writing() as connection:
            connection.execute(sa.delete(tables.job_users))
        async with reading(nothing, house) as looker:
            page = await looker.page("/jobs")
            assert "Lag report of the day" in page
            assert "tidemark scheduler users add NAME --admin" in page
            assert "tidemark scheduler users password NAME" in page
            assert "do=" not in page, "no way to change anything is shown"
            assert "do=" not in await looker.page(f"/jobs/{house.jobs['script']}/source")
            assert "Audit" not in page
            assert "may not see the audit" in await looker.page("/jobs/audit")
        async with reading(nothing, house, is_local=False) as stranger:
            assert "Lag report of the day" not in await stranger.page("/jobs")

    async def test_somebody_sees_the_jobs_of_his_groups_and_not_whether_there_are_others(
        self, nothing: Lake, house: House
    ) -> None:
        async with reading(nothing, house, "ann") as ann:
            listed = await ann.page("/jobs")
            assert "Lag report of the day" in listed
            assert "Convert new files" not in listed
            assert "1 to 3 of 3" in listed
            assert "media" not in await ann.page("/jobs/executors")
            foreign = await ann.page(f"/jobs/{house.jobs['convert']}")
            none = await ann.page("/jobs/99")
            assert "may not see the jobs" in foreign
            assert _without_digest(foreign) == _without_digest(none)
            run = house.jobs["shard"]
            for path in (f"/jobs/{house.jobs['daily']}", f"/jobs/{house.jobs['convert']}"):
                assert await ann.log(path, f"?run={run}") is None
                assert "10.0.1" not in await ann.page(path, f"?run={run}")
            assert "may not see the audit" in await ann.page("/jobs/audit")

    async def test_an_administrator_sees_all_and_who_changed_what(
        self, nothing: Lake, any_house: House
    ) -> None:
        async with reading(nothing, any_house, "root") as root:
            page = await root.page("/jobs", "?q=convert")
            assert "1 to 1 of 1" in page
            page = await root.page(f"/jobs/{any_house.jobs['daily']}")
            for sentence in (
                *("Europe/Berlin", "2026-05-29 08:00:00", "2026-05-29 06:00:00", "run now"),
                *("the lake cannot be read: no such bucket", "7 groups, 2 late", "older"),
            ):
                assert sentence in page, sentence
            shards = await root.page(
                f"/jobs/{any_house.jobs['convert']}", f"?run={any_house.jobs['shard']}"
            )
            assert "3 shards of 5 over, 2 done" in shards
            failed = await root.page(f"/jobs/{any_house.jobs['daily']}", "?rstate=FAILED")
            assert "no such bucket" in failed
            assert "7 groups" not in failed
            beats = await root.page("/jobs/executors")
            assert "21 s ago" in beats
            audit = await root.page("/jobs/audit", "?q=start")
            assert "job:1" in audit
            assert "print(" not in await root.page("/jobs/audit"), "sources stay out of it"

    async def test_hostile_names_are_text_and_cut(self, nothing: Lake, house: House) -> None:
        async with reading(nothing, house, "root") as root:
            for path, search in (
                ("/jobs", ""),
                (f"/jobs/{house.jobs['hostile']}", ""),
                (f"/jobs/{house.jobs['long']}", ""),
                ("/jobs/executors", ""),
                ("/jobs/audit", ""),
                (f"/jobs/{house.jobs['convert']}", f"?run={house.jobs['shard']}"),
            ):
                page = await root.page(path, search)
                assert "\u202e" not in page, path
                assert "x" * 1_000 not in page, path
                assert "dangerously" not in page, path


def _without_digest(page: str) -> Any:
    return {name: value for name, value in json.loads(page).items() if name != "jobs-seen"}


VALUES: dict[str, dict[str, str]] = {
    "edit": {"title": "mine"},
    "copy": {"title": "a copy", "group": "media"},
    "add": {"title": "new", "handler": "x", "group": "media"},
    "source": {"glue_source": "print(1)", "remark": "why"},
    "back": {"glue_id": "1", "remark": "why"},
}


class TestWhoChanges:
    @pytest.mark.parametrize("action", ACTIONS)
    @pytest.mark.parametrize("who", ["stranger", "looker", "ann", "another's cookie"])
    async def test_nobody_changes_by_hand_what_he_may_not(
        self, nothing: Lake, house: House, action: str, who: str
    ) -> None:
        subject = 0 if action == "add" else house.jobs["convert"]
        if action == "kill":
            subject = house.jobs["shard"] - 1
        if who == "looker":
            with house.database.writing() as connection:
                connection.execute(sa.delete(tables.job_users))
        async with reading(nothing, house, "root" if who != "looker" else "") as root:
            values = VALUES.get(action, {})
            known: dict[str, str] = {}
            if who != "looker":
                _, known = await root.preview(action, subject, values=values)
        before = house.rows()
        async with reading(nothing, house, "ann" if who == "ann" else "") as reader:
            if who == "another's cookie":
                reader.web.cookies.set(COOKIE, "A" * 43)
            for step in ("preview", "do"):
                panel = await reader.step(step, action, subject, values=values, **known)
                if (who, action, step) == ("ann", "add", "preview"):
                    continue  # She may make jobs, but not of that group.
                assert "may not do this" in text(panel) or "Nobody has signed in" in text(panel)
                assert '"Done"' not in text(panel)
        assert house.rows() == before
        assert house.actions("ann")[:2] == ["start", "start"], "those of the story alone"

    async def test_a_right_that_is_taken_away_between_preview_and_click_is_gone(
        self, nothing: Lake, any_house: House
    ) -> None:
        job_id = any_house.jobs["daily"]
        async with reading(nothing, any_house, "ann") as ann:
            _, known = await ann.preview("pause", job_id)
            people.edit_user(any_house.database, "ann", jobs_shown.by(), group_ids=[])
            assert "Not done" in text(await ann.step("do", "pause", job_id, **known))
            assert "sign-in-name" in await ann.page("/jobs"), "and so is the session"
        assert jobs.job_of(any_house.database, job_id).is_active

    async def test_pages_of_others_change_nothing_with_somebodys_cookie(
        self, nothing: Lake, house: House
    ) -> None:
        job_id = house.jobs["daily"]
        async with reading(nothing, house, "ann") as ann:
            _, known = await ann.preview("pause", job_id)
            asked = {"step": "do", "action": "pause", "subject": job_id, "values": {}, **known}
            body = {
                "output": "change-tree.data",
                "outputs": at("change-tree.data"),
                "inputs": [
                    {
                        **at("change-asked.data"),
                        "value": asked | {"path": "/jobs/1", "search": ""},
                    },
                    {**at("url.search"), "value": ""},
                    {**at("url.pathname"), "value": "/jobs/1"},
                ],
                "changedPropIds": ["change-asked.data"],
            }
            for headers, status in (
                ({**OURS, "origin": "http://evil.example"}, 403),
                ({**OURS, "sec-fetch-site": "cross-site"}, 403),
                ({"content-type": "text/plain"}, 415),
                ({**OURS, "host": "rebound.example"}, 421),
            ):
                answer = await ann.web.post(
                    "/_dash-update-component", content=json.dumps(body), headers=headers
                )
                assert answer.status_code == status
            too_long = json.dumps(body | {"more": "x" * BODY_BYTES_MAX})
            answer = await ann.web.post("/_dash-update-component", content=too_long, headers=OURS)
            assert answer.status_code == 413
            assert jobs.job_of(house.database, job_id).is_active
            answer = await ann.web.post("/_dash-update-component", json=body, headers=OURS)
            assert "is paused" in answer.text, "by our own page it is done"

    @pytest.mark.parametrize(
        "job",
        [
            {"action": "drop"},
            {"action": None},
            {"subject": "1"},
            {"subject": True},
            {"subject": -1},
            {"subject": 2**70},
            {"values": []},
            {"values": {"title": 7}},
            {"values": {str(at): "x" for at in range(1_000)}},
            {"version": 7},
            {"key": None},
            {"step": "do", "version": "\ud800", "key": "\x00"},
        ],
    )
    async def test_what_no_page_of_ours_asks_does_nothing(
        self, nothing: Lake, house: House, job: dict[str, Any]
    ) -> None:
        before = house.rows()
        async with reading(nothing, house, "root") as root:
            asked = {"subject": 1, "values": {}, "step": "do", "action": "pause"} | job
            await root.panel("/jobs/1", "", asked | {"path": "/jobs/1", "search": ""})
        assert house.rows() == before


class TestWhatIsDone:
    async def test_what_was_previewed_is_done_once_however_often_it_is_clicked(
        self, nothing: Lake, any_house: House
    ) -> None:
        job_id = any_house.jobs["script"]
        values = {"title": "copied", "group": "lag-reports"}
        async with reading(nothing, any_house, "ann") as ann:
            for action in ("run", "copy", "pause"):
                if action == "pause":
                    jobs.start_job(any_house.database, job_id, jobs_shown.by())
                given = values if action == "copy" else {}
                before = any_house.actions("ann")
                _, known = await ann.preview(action, job_id, values=given)
                clicks = [ann.step("do", action, job_id, values=given, **known) for _ in range(4)]
                answers = [text(one) for one in await asyncio.gather(*clicks)]
                again = text(await ann.step("do", action, job_id, values=given, **known))
                assert any('"Done"' in one for one in answers), answers
                assert '"Done"' in again, again
                assert len(any_house.actions("ann")) == len(before) + 1, action
        assert any_house.actions("ann")[:3] == ["pause", "add", "run"]

    async def test_a_job_that_was_changed_meanwhile_is_previewed_again(
        self, nothing: Lake, any_house: House
    ) -> None:
        job_id, database = any_house.jobs["daily"], any_house.database
        async with reading(nothing, any_house, "ann") as ann:
            for action in ("run", "pause", "remove", "edit", "copy"):
                values = VALUES.get(action, {}) | (
                    {"group": "lag-reports"} if action == "copy" else {}
                )
                _, known = await ann.preview(action, job_id, values=values)
                settings = jobs.job_of(database, job_id).settings
                service = PageService(
                    database, Actor("root", is_admin=True), lambda: jobs_shown.NOW_MS
                )
                changed = {"parameters": settings.parameters + "!"}
                service.edit_job(job_id, type(settings)(**_as_dict(settings) | changed))
                before = any_house.rows()
                panel = await ann.step("do", action, job_id, values=values, **known)
                assert NEW_NOW in text(panel), action
                assert any_house.rows() == before, action
                assert panel["props"]["data-version"] not in {"", known["version"]}

    async def test_within_the_stores_transaction_too(self, house: House) -> None:
        job_id = house.jobs["daily"]
        job = jobs.job_of(house.database, job_id)
        service = PageService(
            house.database,
            Actor("root", is_admin=True),
            lambda: jobs_shown.NOW_MS,
            expects=job.version,
        )
        jobs.pause_job(house.database, job_id, jobs_shown.by())
        before = house.rows()
        for change in (
            lambda: service.edit_job(job_id, job.settings),
            lambda: service.start_job(job_id),
            lambda: service.pause_job(job_id),
            lambda: service.remove_job(job_id),
            lambda: service.run_job(job_id, "key"),
            lambda: service.roll_back(house.jobs["script"], 1),
        ):
            with pytest.raises(jobs.JobChanged):
                change()
        assert house.rows() == before

    async def test_other_values_than_were_previewed_are_previewed_first(
        self, nothing: Lake, house: House
    ) -> None:
        job_id = house.jobs["daily"]
        async with reading(nothing, house, "ann") as ann:
            panel, known = await ann.preview("edit", job_id, values={"timeout_s": "60"})
            assert "900" in text(panel)
            panel = await ann.step("do", "edit", job_id, values={"timeout_s": "61"}, **known)
            assert NEW_NOW in text(panel)
            assert jobs.job_of(house.database, job_id).settings.timeout_s == 900

    async def test_each_error_stands_beside_its_field_and_nothing_can_be_done(
        self, nothing: Lake, house: House
    ) -> None:
        job_id = house.jobs["daily"]
        values = {"title": " ", "zone": "Mars/Olympus", "retries": "many", "timeout_s": "-1",
                  "schedule_text": "0 0 8 30 2 ?", "children": "x"}  # fmt: skip
        async with reading(nothing, house, "ann") as ann:
            panel, known = await ann.preview("edit", job_id, values=values)
            for name in values:
                if name != "schedule_text":  # It is read once its zone is one.
                    assert f'"id": "field-{name}-wrong"' in text(panel), name
            assert '"data-step": "do"' not in text(panel)
            await ann.step("do", "edit", job_id, values=values, **known)
            panel, _ = await ann.preview("edit", job_id, values={"schedule_text": "0 0 8 30 2 ?"})
            assert '"id": "field-schedule_text-wrong"' in text(panel)
        assert house.actions("ann")[:2] == ["start", "start"]

    async def test_a_job_is_made_changed_and_removed(self, nothing: Lake, any_house: House) -> None:
        async with reading(nothing, any_house, "ann") as ann:
            made = {"title": "new", "handler": "x", "group": "lag-reports"}
            _, known = await ann.preview("add", 0, values=made, path="/jobs")
            done = await ann.step("do", "add", 0, values=made, path="/jobs", **known)
            [job_id] = [
                job.job_id
                for job in jobs.jobs_after(any_house.database)
                if job.settings.title == "new"
            ]
            assert f"/jobs/{job_id}" in text(done)
            edited = {
                "schedule_kind": "CRON",
                "schedule_text": "0 0 12 * * ?",
                "zone": "Asia/Tokyo",
            }
            panel, known = await ann.preview("edit", job_id, values=edited)
            assert "2026-05-29 12:00:00, 2026-05-30 12:00:00" in text(panel)
            await ann.step("do", "edit", job_id, values=edited, **known)
            for action, said in (
                ("start", "is active"),
                ("pause", "is paused"),
                ("remove", "is removed"),
            ):
                _, known = await ann.preview(action, job_id)
                assert said in text(await ann.step("do", action, job_id, **known))
            assert "may not" in text(await ann.step("preview", "run", job_id))
        assert any_house.actions("ann")[:5] == ["remove", "pause", "start", "edit", "add"]

    async def test_a_child_or_a_group_of_others_is_refused_by_the_service(
        self, nothing: Lake, house: House
    ) -> None:
        before = house.rows()
        async with reading(nothing, house, "ann") as ann:
            for values in ({"children": str(house.jobs["convert"])}, {"group": "media"}):
                _, known = await ann.preview("edit", house.jobs["daily"], values=values)
                panel = await ann.step("do", "edit", house.jobs["daily"], values=values, **known)
                assert "may not" in text(panel)
        assert house.rows() == before

    async def test_a_circle_stands_beside_the_field_of_children_with_its_path(
        self, nothing: Lake, house: House
    ) -> None:
        first, second = house.jobs["daily"], house.jobs["script"]
        async with reading(nothing, house, "ann") as ann:
            values = {"children": str(first)}
            _, known = await ann.preview("edit", second, values=values)
            await ann.step("do", "edit", second, values=values, **known)
            assert jobs.job_of(house.database, second).settings.children == (first,)
            panel, _ = await ann.preview("edit", first, values={"children": str(second)})
            assert '"id": "field-children-wrong"' in text(panel)
            assert f"{first} → {second} → {first}" in text(panel)
            assert '"data-step": "do"' not in text(panel)

    async def test_a_source_is_changed_with_a_remark_and_rolled_back(
        self, nothing: Lake, any_house: House
    ) -> None:
        job_id = any_house.jobs["script"]
        new = {"glue_source": "print('new')\n", "remark": ""}
        async with reading(nothing, any_house, "ann") as ann:
            panel, _ = await ann.preview("source", job_id, values=new)
            assert '"id": "field-remark-wrong"' in text(panel)
            new["remark"] = "shorter"
            panel, known = await ann.preview("source", job_id, values=new)
            assert "+print('new')" in text(panel)
            assert "-for n in range(3):" in text(panel)
            await ann.step("do", "source", job_id, values=new, **known)
            first = glue.glue_of(any_house.database, job_id)[-1]
            back = {"glue_id": str(first.glue_id), "remark": "it was better"}
            _, known = await ann.preview("back", job_id, values=back)
            await ann.step("do", "back", job_id, values=back, **known)
            page = await ann.page(f"/jobs/{job_id}/source", f"?glue={first.glue_id}")
            assert "It is the same as now." in page
        versions = glue.glue_of(any_house.database, job_id)
        assert [one.remark for one in versions] == [
            "it was better", "shorter", "says what it was given", ""
        ]  # fmt: skip
        assert versions[0].source == jobs_shown.OLD_SOURCE

    async def test_a_run_that_waits_is_cancelled_and_one_whose_executor_is_gone_is_noted(
        self, nothing: Lake, house: House
    ) -> None:
        waits = jobs_shown.a_run(
            house.database, house.jobs["daily"], RunState.PLANNED, cause="hand:x"
        )
        sent = jobs_shown.a_run(
            house.database, house.jobs["daily"], RunState.RUNNING, cause="hand:y",
            address="http://10.9.9.9:9/",
        )  # fmt: skip
        path = f"/jobs/{house.jobs['daily']}"
        async with reading(nothing, house, "ann") as ann:
            _, known = await ann.preview("kill", waits, path=path)
            assert "cancelled" in text(await ann.step("do", "kill", waits, path=path, **known))
            panel, known = await ann.preview("kill", sent, path=path)
            assert "http://10.9.9.9:9/ is asked to end it" in text(panel)
            panel = await ann.step("do", "kill", sent, path=path, **known)
            assert "is not registered" in text(panel)
            log = await ann.log(path, f"?run={sent}")
            assert "is not registered" in log["said"]
        assert results.run_of(house.database, waits).state is RunState.CANCELLED


async def test_while_the_database_is_away_the_page_says_so_and_then_it_is_back(
    nothing: Lake, house: House
) -> None:
    async with reading(nothing, house, "root") as root:
        assert "Lag report" in await root.page("/jobs")
        with house.database.writing() as connection:
            connection.exec_driver_sql("ALTER TABLE jobs RENAME TO elsewhere")
        assert "The database of jobs cannot be read" in await root.page("/jobs")
        assert "Not done" in text(await root.step("preview", "pause", 1))
        with house.database.writing() as connection:
            connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO jobs")
        assert "Lag report" in await root.page("/jobs")


async def test_a_job_that_cannot_be_read_is_listed_with_its_reason_and_is_mended(
    nothing: Lake, house: House
) -> None:
    job_id = house.jobs["daily"]
    with house.database.writing() as connection:
        connection.execute(
            sa.update(tables.jobs)
            .where(tables.jobs.c.job_id == job_id)
            .values(schedule_text="every day", zone="Mars/Olympus")
        )
    async with reading(nothing, house, "ann") as ann:
        assert "cannot be" in await ann.page("/jobs")
        page = await ann.page(f"/jobs/{job_id}")
        assert "Its schedule cannot be." in page
        assert "It cannot be" in text(await ann.step("preview", "run", job_id))
        assert "It cannot be" not in text(await ann.step("preview", "remove", job_id))
        panel, _ = await ann.preview("edit", job_id, values={"zone": "UTC"})
        assert '"id": "field-schedule_text-wrong"' in text(panel)
        mended = {"zone": "UTC", "schedule_text": "0 0 8 * * ?"}
        _, known = await ann.preview("edit", job_id, values=mended)
        assert "is changed" in text(await ann.step("do", "edit", job_id, values=mended, **known))
    assert jobs.job_of(house.database, job_id).wrong_because is None


def _as_dict(settings: Any) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in settings.__slots__}
