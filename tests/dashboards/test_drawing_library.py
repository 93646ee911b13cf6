"""The library that draws: the small bundle of it, which must be the one that the figures mean.

`dashboards/assets/plotly-cartesian.min.js` is plotly.js without maps, three dimensions and the
rest: a browser needs a third of the time for it. It is the file of the npm package
`plotly.js-cartesian-dist-min`, unchanged.
"""

from __future__ import annotations

import ast
import re

from playwright.sync_api import expect
from plotly.offline import get_plotlyjs_version

from dashboards.web.app import ASSETS
from tests.dashboards.served import Windows, visiting

BUNDLE = ASSETS / "plotly-cartesian.min.js"
TRACES = {"scatter", "heatmap", "bar", "histogram", "box"}
"""Of those that the bundle has."""
FIGURES = ASSETS.parent / "figures"


def test_the_bundle_is_of_the_version_that_the_figures_are_made_for() -> None:
    head = BUNDLE.read_text(encoding="utf-8")[:200]
    version = re.search(r"plotly\.js \(cartesian - minified\) v([\d.]+)", head)
    assert version is not None, head
    assert version[1] == get_plotlyjs_version(), (
        "plotly has another version: take dist's plotly-cartesian.min.js of the npm package "
        f"plotly.js-cartesian-dist-min {get_plotlyjs_version()}"
    )


def test_figures_draw_nothing_that_the_bundle_lacks() -> None:
    used = {
        value.value
        for file in FIGURES.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.returns is not None
        for made in ast.walk(node)
        if isinstance(made, ast.Dict) and ast.unparse(node.returns) == "Trace"
        for name, value in zip(made.keys, made.values, strict=True)
        if isinstance(name, ast.Constant) and name.value == "type"
        if isinstance(value, ast.Constant)
    }
    assert {"scatter", "heatmap"} <= used, "where are traces made?"
    assert used <= TRACES, "which trace is it, and is it in the cartesian bundle?"


def test_no_page_waits_for_plotlys_checks_of_a_figure() -> None:
    waiting = {
        f"{file.name}: {ast.unparse(node)}"
        for file in ASSETS.parent.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and re.search(r"^(from|import) plotly\b", ast.unparse(node))
    }
    assert waiting == set(), "what they check by takes 0.13 s to load: see figures/plotly_data.py"


def test_a_page_with_figures_never_asks_for_the_whole_library(
    windows: Windows, origins: dict[str, str]
) -> None:
    with visiting(windows, origins["data"], fresh=True) as visit:
        asked: list[str] = []
        visit.page.on("request", lambda request: asked.append(request.url))
        visit.open("/")
        expect(visit.page.locator("#overview-heatmap .main-svg").first).to_be_visible()
        visit.open("/group/billing")
        assert any(BUNDLE.name in url for url in asked)
        assert [url for url in asked if "plotly.min.js" in url or "async-plotlyjs" in url] == []
        assert visit.faults == []
