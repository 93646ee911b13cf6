"""Groups and users changed from pages, asked by hand over HTTP: by whom, as previewed, once.

Rows F7 and F8.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import sqlalchemy as sa

from dashboards.access.visitors import COOKIE, Standing, Visitor
from dashboards.actions.admin_changes import ADMIN_ACTIONS, RIGHTS, AdminChanges
from dashboards.actions.job_previews import Wish
from dashboards.actions.previewed_changes import NEW_NOW, OtherThanPreviewed
from pipelines.database.tables import operations
from pipelines.lake.lake import Lake
from pipelines.scheduler.passwords import is_password
from pipelines.scheduler.roles import Actor
from pipelines.scheduler.store import groups, people, sessions, tables
from pipelines.scheduler.store.audit import audit_of
from tests.dashboards import jobs_shown
from tests.dashboards.house import House, Reader, reading, text

SECRET = "a long and secret word"
VALUES: dict[str, dict[str, str]] = {
    "group-add": {"app_name": "new", "title": "New ones", "addresses": "http://10.0.2.1:9999/"},
    "group-edit": {"name": "lag-reports", "title": "Other", "addresses": ""},
    "group-copy": {"name": "media", "as_name": "media-2"},
    "group-remove": {"name": "empty"},
    "user-add": {"user": "bob", "rights": RIGHTS[0], "groups": "media", "password": SECRET},
    "user-edit": {"name": "ann", "rights": RIGHTS[0], "groups": "lag-reports, media"},
    "user-copy": {"name": "ann", "as_name": "cat"},
    "user-password": {"name": "root", "password": SECRET},
    "user-remove": {"name": "ann"},
}


@pytest.fixture(autouse=True)
def an_empty_group(request: pytest.FixtureRequest) -> None:
    """One that may be removed."""
    name = "any_house" if "any_house" in request.fixturenames else "house"
    groups.add_group(request.getfixturevalue(name).database, "empty", jobs_shown.by())


async def do(reader: Reader, action: str, values: dict[str, str]) -> str:
    """Preview it and click."""
    panel, known = await reader.preview(action, 0, values=values)
    assert '"data-step": "do"' in text(panel), text(panel)
    return text(await reader.step("do", action, 0, values=values, **known))


@pytest.mark.parametrize("action", ADMIN_ACTIONS)
@pytest.mark.parametrize("who", ["stranger", "looker", "ann", "another's cookie"])
async def test_nobody_else_changes_them_by_hand(
    nothing: Lake, house: House, action: str, who: str
) -> None:
    values = VALUES[action]
    async with reading(nothing, house, "root") as root:
        _, known = await root.preview(action, 0, values=values)
        assert known["version"]
    if who == "looker":
        with house.database.writing() as connection:
            connection.execute(sa.delete(tables.job_users))
    before = house.rows()
    async with reading(nothing, house, "ann" if who == "ann" else "") as reader:
        if who == "another's cookie":
            reader.web.cookies.set(COOKIE, "A" * 43)
        for step in ("preview", "do"):
            panel = text(await reader.step(step, action, 0, values=values, **known))
            assert "may not do this" in panel or "Nobody has signed in" in panel
            assert '"Done"' not in panel
        path = "/jobs/users" if action.startswith("user") else "/jobs/executors"
        opened = text(await reader.panel(path, f"?do={action}&name={values.get('name', '')}"))
        assert '"data-step": "do"' not in opened
        assert f"do={action}" not in await reader.page(path)
    assert house.rows() == before


async def test_an_administrator_makes_changes_copies_and_removes_them(
    nothing: Lake, any_house: House
) -> None:
    database = any_house.database
    async with reading(nothing, any_house, "root") as root:
        for action in ADMIN_ACTIONS:
            if action not in {"user-password", "user-remove"}:  # His own session would end; hers.
                assert "it is done" in await do(root, action, VALUES[action]), action
        there = {one.app_name: one for one in groups.groups(database)}
        assert there["new"].manual_addresses == ("http://10.0.2.1:9999/",)
        assert (there["lag-reports"].title, there["lag-reports"].manual_addresses) == (
            "Other",
            None,
        )
        assert there["media-2"].manual_addresses == there["media"].manual_addresses
        assert "empty" not in there
        media, reports = there["media"].group_id, there["lag-reports"].group_id
        rights = {one.name: (one.is_admin, set(one.group_ids)) for one in people.users(database)}
        assert rights["bob"] == (False, {media})
        assert rights["ann"] == rights["cat"] == (False, {media, reports})
        assert is_password(SECRET, sessions.kept_password(database, "bob"))
        assert not any(one.has_password for one in people.users(database) if one.name == "cat")

        listed = await root.page("/jobs/users")
        for said in ("bob", "see and change the jobs of", "everything", "no password"):
            assert said in listed
        assert "do=group-edit&name=new" in await root.page("/jobs/executors")
        assert "it is done" in await do(root, "user-remove", VALUES["user-remove"])
        assert "it is done" in await do(root, "user-password", VALUES["user-password"])
        assert "sign-in-name" in await root.page("/jobs/users"), "his password is another"
    assert any_house.actions("root")[:9] == [
        *("password", "remove", "add", "edit", "password", "add"),
        *("remove", "add", "edit"),
    ]


async def test_a_password_is_stored_as_a_hash_and_shown_to_nobody(
    nothing: Lake, house: House
) -> None:
    async with reading(nothing, house, "root") as root:
        panel, known = await root.preview("user-add", 0, values=VALUES["user-add"])
        assert '"type": "password"' in text(panel)
        other = VALUES["user-add"] | {"password": "quite another secret"}
        again, _ = await root.preview("user-add", 0, values=other)
        assert again["props"]["data-version"] == known["version"], "no digest of it is sent"
        assert SECRET not in await do(root, "user-add", VALUES["user-add"])
    with house.database.reading() as connection:
        kept = connection.execute(sa.select(operations)).all()
    assert kept
    assert SECRET not in f"{kept}{audit_of(house.database)}{house.rows()}"


async def test_somebody_gives_himself_another_password_and_nobody_else(
    nothing: Lake, house: House
) -> None:
    async with reading(nothing, house, "ann") as ann:
        assert "it is done" in await do(ann, "user-password", {"name": "ann", "password": SECRET})
    assert is_password(SECRET, sessions.kept_password(house.database, "ann"))


async def test_what_was_previewed_is_done_once_however_often_it_is_clicked(
    nothing: Lake, any_house: House
) -> None:
    async with reading(nothing, any_house, "root") as root:
        for action in ("group-copy", "user-copy", "user-edit"):
            values, before = VALUES[action], len(any_house.actions("root"))
            _, known = await root.preview(action, 0, values=values)
            clicks = [root.step("do", action, 0, values=values, **known) for _ in range(4)]
            answers = [text(one) for one in await asyncio.gather(*clicks)]
            again = text(await root.step("do", action, 0, values=values, **known))
            assert any('"Done"' in one for one in answers), answers
            assert '"Done"' in again, again
            assert len(any_house.actions("root")) == before + 1, action


async def test_what_was_changed_meanwhile_is_previewed_again(
    nothing: Lake, any_house: House
) -> None:
    database = any_house.database
    values = VALUES["user-edit"]
    async with reading(nothing, any_house, "root") as root:
        panel, known = await root.preview("user-edit", 0, values=values)
        assert "lag-reports, media" in text(panel)
        people.edit_user(database, "ann", jobs_shown.by(), is_admin=True)
        before = any_house.rows()
        again = await root.step("do", "user-edit", 0, values=values, **known)
        assert NEW_NOW in text(again)
        assert any_house.rows() == before
        other = values | {"groups": "media"}
        assert NEW_NOW in text(await root.step("do", "user-edit", 0, values=other, **known))
        assert any_house.rows() == before


async def test_within_the_transaction_that_does_it_too(any_house: House) -> None:
    visitors = jobs_shown.visitors_of(any_house.address)
    changes = AdminChanges(visitors)
    root = Visitor(Standing.SIGNED_IN, Actor("root", is_admin=True))
    wish = Wish("user-edit", 0, VALUES["user-edit"])
    shown = changes.preview(root, wish)
    assert shown.preview is not None
    people.edit_user(any_house.database, "ann", jobs_shown.by(), is_admin=True)
    before = any_house.rows()
    with pytest.raises(OtherThanPreviewed):
        changes._apply(any_house.database, root, shown, version=shown.preview.version, key="key")
    assert any_house.rows() == before
    visitors.database.close()


@pytest.mark.parametrize(
    ("action", "other", "field", "said"),
    [
        ("group-add", {"app_name": "media"}, "app_name", "group 'media' exists already"),
        ("group-add", {"app_name": ""}, "app_name", "1 to 64"),
        ("group-add", {"addresses": "http://169.254.169.254/"}, "addresses", "executor can have"),
        ("group-edit", {"title": " "}, "title", "1 to"),
        ("group-copy", {"as_name": "lag-reports"}, "as_name", "exists already"),
        ("group-remove", {"name": "media"}, "", "group 'media' has"),
        ("group-edit", {"name": "nobody"}, "", "there is no group"),
        ("user-add", {"user": "ann"}, "user", "exists already"),
        ("user-add", {"groups": "media, nobody's"}, "groups", "there is no group"),
        ("user-add", {"password": "short"}, "password", "12 to"),
        ("user-password", {"password": ""}, "password", "12 to"),
        ("user-edit", {"name": "root", "rights": RIGHTS[0]}, "", "is the last administrator"),
        ("user-edit", {"groups": "lag-reports"}, "", "Nothing is changed yet"),
        ("user-remove", {"name": "root"}, "", "is the last administrator"),
    ],
)
async def test_what_cannot_be_is_said_beside_its_field_and_not_done(
    nothing: Lake, house: House, action: str, other: dict[str, str], field: str, said: str
) -> None:
    before = house.rows()
    values = VALUES[action] | other
    async with reading(nothing, house, "root") as root:
        panel, known = await root.preview(action, 0, values=values)
        assert said in text(panel)
        assert (f'"id": "field-{field}-wrong"' in text(panel)) is bool(field)
        assert '"data-step": "do"' not in text(panel)
        assert '"Done"' not in text(await root.step("do", action, 0, values=values, **known))
    assert house.rows() == before


async def test_a_panel_is_opened_with_what_stands_and_as_text(nothing: Lake, house: House) -> None:
    async with reading(nothing, house, "root") as root:
        panel = await root.panel("/jobs/executors", "?do=group-edit&name=media")
        assert _values_of(panel) == {
            "name": "media", "title": jobs_shown.HOSTILE, "addresses": "http://10.0.1.7:9999/",
        }  # fmt: skip
        panel = await root.panel("/jobs/users", "?do=user-edit&name=ann")
        assert _values_of(panel)["groups"] == "lag-reports"
        for path, search in (
            ("/jobs/users", "?do=group-edit&name=media"),
            ("/jobs", "?do=user-add"),
            ("/jobs/executors", "?do=group-destroy&name=media"),
        ):
            assert "nothing of that kind" in text(await root.panel(path, search))
        assert "there is no user" in text(
            await root.panel("/jobs/users", "?do=user-edit&name=%00nobody")
        )


def _values_of(panel: Any) -> dict[str, str]:
    """What its fields hold."""
    found: dict[str, str] = {}

    def look(one: Any) -> None:
        if isinstance(one, list):
            for each in one:
                look(each)
        elif isinstance(one, dict):
            props = one.get("props", {})
            if "data-field" in props:
                found[props["data-field"]] = props.get("value", one.get("children"))
            look(one.get("children"))

    look(json.loads(json.dumps(panel)))
    return found
