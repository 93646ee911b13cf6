"""`tidemark lab` opens ready to run: nothing asks first, and the tour finds the lake at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Route

TIDEMARK = Path(sys.executable).parent / "tidemark"
ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)/lab\?(token=\w+)")
WITHIN_MS = 45_000
STOPPED_WITHIN_S = 60


@contextmanager
def lab(lake: Path, home: Path) -> Iterator[str]:
    """The address of the tour in a lab on `lake`, of a user who never started one before."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JUPYTER", "TIDEMARK"))
    }
    command = [str(TIDEMARK), "lab", "--lake", str(lake), "--port", "0", "--no-browser"]
    with subprocess.Popen(
        command,
        env={**environment, "HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = []
        try:
            for line in process.stderr:
                said.append(line)
                if found := ADDRESS.search(line):
                    yield f"{found[1]}/lab/tree/00_tour.ipynb?{found[2]}"
                    return
            raise AssertionError("the lab said no address:\n" + "".join(said))
        finally:
            process.terminate()
            process.communicate(timeout=STOPPED_WITHIN_S)


def keep_the_notebook(route: Route) -> None:
    """Nothing that this test runs may be saved into the project's notebook."""
    if route.request.method == "PUT":
        route.abort()
    else:
        route.continue_()


def test_one_key_press_in_a_lab_just_opened_connects_the_tour_to_its_lake(
    tmp_path: Path, browser: Browser
) -> None:
    asked: list[str] = []
    with lab(tmp_path / "lake", tmp_path) as address, browser.new_page() as page:
        page.set_default_timeout(WITHIN_MS)
        page.route("**/api/contents/**", keep_the_notebook)
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        # JupyterLab passes over a cell that is run before its kernel is there.
        page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for()

        cell = page.locator(".jp-Notebook .jp-CodeCell").first
        cell.locator(".jp-InputArea-editor").click()
        page.keyboard.press("Shift+Enter")
        shown = cell.locator(".jp-OutputArea-output").first
        shown.wait_for()

        assert str(tmp_path / "lake") in shown.inner_text()
        assert page.locator(".jp-Dialog").count() == 0
        assert page.locator(".Toastify__toast").count() == 0
    assert not [url for url in asked if re.search("/lab/api/(build|news|update)", url)]
    assert not [url for url in asked if not url.startswith(("http://127.0.0.1:", "data:", "blob:"))]
