"""Signing in over HTTP: who gets in, who does not, and what a wrong try costs."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from fastapi import FastAPI

from dashboards.access.security import LOOPBACK_NAMES, Guard
from dashboards.access.visitors import COOKIE, NotedVisits, Standing, Visit, Visitors, visit_of
from dashboards.reads.job_database import JobDatabase
from dashboards.web import sign_in_routes
from dashboards.web.app import build
from dashboards.web.sign_in_routes import A_NAME, ALL_NAMES, SignIn, add_sign_in
from pipelines.database.database import Database
from pipelines.lake.lake import Lake
from pipelines.scheduler.passwords import NO_PASSWORD, is_password
from pipelines.scheduler.store import people
from pipelines.scheduler.store.audit import Change, audit_of
from pipelines.scheduler.store.tables import job_users
from tests.dashboards.conftest import FRESH
from tests.dashboards.served import Windows, serving, visiting
from tests.integration.client.cluster_users import eventually
from tests.sqlite_databases import filled_by, laid_in

PASSWORD = "correct horse battery"
NOW_MS = 1_780_000_000_000
JSON = {"content-type": "application/json"}
OURS = {"origin": "http://localhost", "sec-fetch-site": "same-origin", **JSON}


class Clock:
    """A clock of the database that stands until it is moved."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self, _: Database) -> int:
        return self.now_ms


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Ann, who has a password; Bob, who has none."""
    made = Database.at(laid_in(tmp_path, _of_both()))
    yield made
    made.close()


@cache
def _of_both() -> bytes:
    """Made once: to hash a password takes its time."""

    def add(database: Database) -> None:
        people.add_user(database, "ann", Change("root", NOW_MS), is_admin=True, password=PASSWORD)
        people.add_user(database, "bob", Change("root", NOW_MS))

    return filled_by(add)[0]


@asynccontextmanager
async def asked(
    lake: Lake, folder: Path, clock: Clock | None = None, **fields: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A dashboard over the database of a folder, and somebody who asks it without a browser."""
    kept = JobDatabase(f"sqlite:///{folder / 'tidemark.db'}")
    visitors = Visitors(kept, is_local=True, clock_ms=clock or Clock())
    application: Any = build(lake, clock=lambda: FRESH, visitors=visitors)
    address = fields.pop("base_url", "http://localhost")
    try:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=application), base_url=address, **fields
        ) as web:
            yield web
    finally:
        kept.close()


@asynccontextmanager
async def at_the_door(
    folder: Path, is_right: Callable[[str, str], bool], clock: Clock | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    """The door alone, where passwords are looked at by the test."""
    kept = JobDatabase(f"sqlite:///{folder / 'tidemark.db'}")
    server = FastAPI()
    add_sign_in(server, SignIn(Visitors(kept, clock_ms=clock or Clock()), is_right=is_right))
    guarded: Any = Guard(NotedVisits(server), allowed_hosts=LOOPBACK_NAMES, headers=[])
    transport = httpx.ASGITransport(app=guarded)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as web:
        yield web
    kept.close()


async def tried(
    web: httpx.AsyncClient, name: str = "ann", password: str = PASSWORD, **fields: Any
) -> httpx.Response:
    return await web.post(
        "/session", json={"name": name, "password": password}, headers=OURS | fields
    )


async def shown(web: httpx.AsyncClient) -> str:
    """What the frame says of who asks."""
    body = {
        "output": "visitor.children",
        "outputs": {"id": "visitor", "property": "children"},
        "inputs": [{"id": "url", "property": "pathname", "value": "/"}],
        "changedPropIds": ["url.pathname"],
    }
    answer = await web.post("/_dash-update-component", json=body, headers=OURS)
    assert answer.status_code == 200, answer.text
    return answer.text


async def test_the_right_password_lets_in_and_signing_out_ends_it(
    nothing: Lake, database: Database, tmp_path: Path
) -> None:
    async with asked(nothing, tmp_path) as web:
        assert "sign in" in await shown(web)
        answer = await tried(web)
        assert answer.status_code == 200
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}=")
        for part in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=604800"):
            assert part in cookie, part
        assert "Secure" not in cookie, "over http a browser would not keep it"
        assert answer.headers["cache-control"] == "no-store"
        assert "administrator" in await shown(web)
        kept = web.cookies[COOKIE]
        ended = await web.post("/session/end", json={}, headers=OURS)
        assert ended.status_code == 200
        assert COOKIE not in web.cookies
        assert "administrator" not in await shown(web)
        web.cookies.set(COOKIE, kept)
        assert "administrator" not in await shown(web), "the session is over, not the cookie alone"
    assert [one.action for one in audit_of(database, "user:ann")][:2] == ["sign out", "sign in"]


async def test_over_https_the_cookie_goes_nowhere_else(
    nothing: Lake, database: Database, tmp_path: Path
) -> None:
    async with asked(nothing, tmp_path, base_url="https://localhost") as web:
        answer = await tried(web, origin="https://localhost")
        assert "Secure" in answer.headers["set-cookie"]


async def test_a_session_outlives_the_dashboards_process(
    nothing: Lake, database: Database, tmp_path: Path
) -> None:
    async with asked(nothing, tmp_path) as web:
        token = (await tried(web)).cookies[COOKIE]
    async with asked(nothing, tmp_path, cookies={COOKIE: token}) as web:
        assert "administrator" in await shown(web)
        people.edit_user(database, "bob", Change("root", NOW_MS), is_admin=True)
        people.edit_user(database, "ann", Change("root", NOW_MS), is_admin=False)
        assert "sign in" in await shown(web), "with the next request other rights hold"


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("ann", PASSWORD + "!"),
        ("ann", ""),
        ("ann", "x" * 4_000),
        ("Ann", PASSWORD),
        ("bob", ""),
        ("bob", PASSWORD),
        ("nobody", PASSWORD),
        ("", ""),
        ("x" * 4_000, PASSWORD),
        ("ann\x00", PASSWORD),
        ("' OR 1=1 --", PASSWORD),
    ],
)
async def test_whatever_is_wrong_the_answer_is_the_same(
    nothing: Lake, database: Database, tmp_path: Path, name: str, password: str
) -> None:
    async with asked(nothing, tmp_path) as web:
        answer = await tried(web, name, password)
        assert (answer.status_code, answer.json()) == (401, {"said": sign_in_routes.WRONG})
        assert "set-cookie" not in answer.headers
    [noted] = [one for one in audit_of(database) if one.action == "sign in failed"]
    assert noted.detail == name[:64]
    assert PASSWORD not in str(audit_of(database))


async def test_a_password_is_looked_at_whether_there_is_such_a_name_or_not(
    nothing: Lake, database: Database, tmp_path: Path
) -> None:
    looked_at: list[tuple[str, bool]] = []

    def looking(text: str, kept: str) -> bool:
        looked_at.append((text, kept == NO_PASSWORD))
        return is_password(text, kept)

    async with at_the_door(tmp_path, looking) as web:
        for name in ("ann", "nobody"):
            assert (await tried(web, name, "wrong")).status_code == 401
    assert looked_at == [("wrong", False), ("wrong", True)]


@pytest.mark.parametrize("name", ["ann", "nobody"])
async def test_wrong_tries_make_the_next_ones_wait_the_right_one_too(
    nothing: Lake, database: Database, tmp_path: Path, name: str
) -> None:
    looked_at: list[str] = []

    def never(text: str, kept: str) -> bool:
        looked_at.append(text)
        return False

    clock = Clock()
    async with at_the_door(tmp_path, never, clock) as web:
        for _ in range(A_NAME.free):
            assert (await tried(web, name, "wrong")).status_code == 401
        answer = await tried(web, name, PASSWORD)
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "2"
        assert len(looked_at) == A_NAME.free, "it was not looked at"
        clock.now_ms += 2_000
        assert (await tried(web, name, "wrong")).status_code == 401
        assert (await tried(web, name, PASSWORD)).headers["retry-after"] == "4"
        assert (await tried(web, "carl", "wrong")).status_code == 401, "others do not wait"


async def test_a_flood_is_bounded_and_so_is_what_it_leaves(
    database: Database, tmp_path: Path
) -> None:
    async with at_the_door(tmp_path, lambda name, kept: False) as web:
        answers = [await tried(web, f"name{at}", "x") for at in range(ALL_NAMES.free + 20)]
    assert [one.status_code for one in answers].count(401) == ALL_NAMES.free
    assert len(audit_of(database)) <= ALL_NAMES.free + 2


async def test_two_passwords_at_most_are_looked_at_at_a_time(
    database: Database, tmp_path: Path
) -> None:
    at_work, most, lock, go = [0], [0], threading.Lock(), threading.Event()

    def slow(text: str, kept: str) -> bool:
        with lock:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
        go.wait(100)
        with lock:
            at_work[0] -= 1
        return False

    admitted = sign_in_routes.CHECKS_AT_ONCE + sign_in_routes.CHECKS_WAITING_MAX
    async with at_the_door(tmp_path, slow) as web:
        tries = [asyncio.create_task(tried(web, f"n{at}", "x")) for at in range(admitted + 5)]
        done, _ = await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 5:
            done, _ = await asyncio.wait(tries, timeout=0.1)
        assert {one.result().status_code for one in done} == {503}
        await eventually(lambda: at_work[0] == sign_in_routes.CHECKS_AT_ONCE, "both are looked at")
        go.set()
        answers = await asyncio.gather(*tries)
    assert [one.status_code for one in answers].count(401) == admitted
    assert most[0] == sign_in_routes.CHECKS_AT_ONCE


@pytest.mark.parametrize("path", ["/session", "/session/end"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({**JSON, "origin": "http://evil.example"}, 403),
        ({**JSON, "origin": "null"}, 403),
        ({**JSON, "sec-fetch-site": "cross-site"}, 403),
        ({**JSON, "sec-fetch-site": "same-site"}, 403),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "text/plain"}, 415),
        ({**JSON, "host": "evil.example"}, 421),
    ],
)
async def test_pages_of_others_can_ask_neither_in_nor_out(
    nothing: Lake,
    database: Database,
    tmp_path: Path,
    path: str,
    headers: dict[str, str],
    status: int,
) -> None:
    async with asked(nothing, tmp_path) as web:
        await tried(web)
        body = json.dumps({"name": "ann", "password": PASSWORD})
        answer = await web.post(path, content=body, headers=headers)
        assert answer.status_code == status
        assert "set-cookie" not in answer.headers
        assert "administrator" in await shown(web), "nobody was signed out"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"{", 400),
        (b'{"name":"ann"}', 400),
        (b'{"name":"ann","password":7}', 400),
        (b'{"name":"ann","password":"x","to":"http://evil"}', 400),
        (b'{"name":"\xff","password":"x"}', 400),
        (b"[" * 10_000, 400),
        (b'{"name":"' + b"x" * 20_000 + b'","password":""}', 413),
    ],
)
async def test_a_body_that_is_none_is_refused(
    nothing: Lake, database: Database, tmp_path: Path, body: bytes, status: int
) -> None:
    async with asked(nothing, tmp_path) as web:
        assert (await web.post("/session", content=body, headers=OURS)).status_code == status
        assert (await web.get("/session")).status_code in {404, 405}


async def test_while_the_database_is_away_it_says_so_and_no_try_counts(
    nothing: Lake, database: Database, tmp_path: Path
) -> None:
    async with asked(nothing, tmp_path) as web:
        renamed(database, "job_users", "elsewhere")
        for _ in range(A_NAME.free + 3):
            answer = await tried(web)
            assert (answer.status_code, answer.json()["said"]) == (503, sign_in_routes.NOT_NOW)
        renamed(database, "elsewhere", "job_users")
        assert (await tried(web)).status_code == 200
        renamed(database, "page_sessions", "elsewhere")
        assert (await web.post("/session/end", json={}, headers=OURS)).status_code == 503
        assert "users unknown" in await shown(web)
        renamed(database, "elsewhere", "page_sessions")
        assert "administrator" in await shown(web), "nobody believes to be out who is not"


def renamed(database: Database, table: str, to: str) -> None:
    with database.writing() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {table} RENAME TO {to}")


class TestWhoAsks:
    def who(
        self, database: Database | None, folder: Path, *, is_local: bool, host: str
    ) -> Standing:
        kept = JobDatabase(f"sqlite:///{folder / 'tidemark.db'}" if database else None)
        visitors = Visitors(kept, is_local=is_local, clock_ms=Clock())
        found = visitors.visitor(Visit("", host)).standing
        kept.close()
        return found

    @pytest.mark.parametrize(
        ("is_local", "host", "has_users", "standing"),
        [
            (True, "127.0.0.1", False, Standing.LOOKS),
            (True, "localhost", False, Standing.LOOKS),
            (True, "lag.example.com", False, Standing.STRANGER),
            (False, "127.0.0.1", False, Standing.STRANGER),
            (True, "127.0.0.1", True, Standing.STRANGER),
            (False, "127.0.0.1", True, Standing.STRANGER),
        ],
    )
    def test_only_at_this_machine_and_only_before_there_are_users_somebody_may_look(
        self, database: Database, tmp_path: Path, is_local: bool, host: str, has_users: bool,
        standing: Standing,
    ) -> None:  # fmt: skip
        if not has_users:
            with database.writing() as connection:
                connection.execute(sa.delete(job_users))
        assert self.who(database, tmp_path, is_local=is_local, host=host) is standing

    def test_where_no_database_is_yet_none_is_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
        assert self.who(None, tmp_path, is_local=True, host="localhost") is Standing.LOOKS
        assert self.who(None, tmp_path, is_local=False, host="localhost") is Standing.STRANGER
        assert not (tmp_path / "home").exists()

    @pytest.mark.parametrize(
        ("lines", "token"),
        [
            ([b"tidemark_session=abc"], "abc"),
            ([b"other=1; tidemark_session=abc; more=2"], "abc"),
            ([b"tidemark_session=abc", b"tidemark_session=def"], ""),
            ([b"tidemark_sessionx=abc"], ""),
            ([b"\xff\xfe=;;;==; tidemark_session"], ""),
            ([], ""),
        ],
    )
    def test_a_cookie_is_taken_that_is_there_once(self, lines: list[bytes], token: str) -> None:
        headers = [(b"host", b"localhost:8050"), *((b"cookie", line) for line in lines)]
        assert visit_of({"type": "http", "headers": headers}) == Visit(token, "localhost")


def test_somebody_signs_in_and_out_in_a_browser(
    nothing: Lake, database: Database, tmp_path: Path, windows: Windows
) -> None:
    kept = JobDatabase(f"sqlite:///{tmp_path / 'tidemark.db'}")
    with (
        serving(nothing, FRESH, visitors=Visitors(kept, is_local=True)) as origin,
        visiting(windows, origin, fresh=True) as visit,
    ):
        page = visit.page
        visit.open("/sign-in?to=%2Fchecks", "sign-in")
        page.get_by_label("name").fill("ann")
        page.get_by_label("password").fill("wrong")
        page.get_by_label("password").press("Enter")
        page.get_by_text(sign_in_routes.WRONG).wait_for()
        assert [fault for fault in visit.faults if "401" not in fault] == []
        visit.faults.clear()
        page.get_by_label("password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{origin}/checks")
        page.locator("#signed-in-name", has_text="ann").wait_for()
        assert page.evaluate("document.cookie") == "", "no script can read it"
        page.get_by_role("button", name="sign out").click()
        page.locator("#sign-in-link").wait_for()
        for to in ("//evil.example/", "http://evil.example", "javascript:alert(1)"):
            visit.open(f"/sign-in?to={to}", "sign-in")
            page.get_by_label("name").fill("ann")
            page.get_by_label("password").fill(PASSWORD)
            page.get_by_label("password").press("Enter")
            page.wait_for_url(f"{origin}/jobs")
        assert visit.faults == []
    kept.close()
