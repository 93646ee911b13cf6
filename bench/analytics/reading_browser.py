"""Loads and traces a page in a browser without attaching a debugger.

A page of Playwright's is debugged: Chromium then takes a whole stack for each error that a library
throws and catches while it begins. For one such stack it reads plotly.js three times more, once for
each function that encloses the place: 150 ms of a task of 280 that no reader waits for. So the
browser itself opens the page, with its debugger off.
"""

from __future__ import annotations

import json
import time
from typing import Any, Final

from playwright.sync_api import Browser, CDPSession

LOOK_EACH_S: Final = 0.25
CATEGORIES: Final = ("toplevel", "devtools.timeline", "__metadata")
MAIN_THREAD: Final = "CrRendererMain"


def traced_load(
    browser: Browser, address: str, *, drawn: str, within_s: float, settled_s: float
) -> list[float]:
    """CPU milliseconds of each task of the main thread, from nothing until the script `drawn` is
    true, and for as long as the page may take to settle.

    Raises TimeoutError when it does not come true `within_s` seconds.
    """
    door = browser.new_browser_cdp_session()
    events: list[dict[str, Any]] = []
    ended = False

    def end(_event: dict[str, Any]) -> None:
        nonlocal ended
        ended = True

    door.on("Tracing.dataCollected", lambda event: events.extend(event["value"]))
    door.on("Tracing.tracingComplete", end)
    config = {"recordMode": "recordAsMuchAsPossible", "includedCategories": list(CATEGORIES)}
    door.send("Tracing.start", {"transferMode": "ReportEvents", "traceConfig": config})
    page = door.send("Target.createTarget", {"url": address})["targetId"]
    until_s = time.monotonic() + within_s
    while not _is_true(door, page, drawn):
        if time.monotonic() > until_s:
            raise TimeoutError(f"{address} is not drawn within {within_s} s: {drawn}")
        time.sleep(LOOK_EACH_S)
    time.sleep(settled_s)
    door.send("Tracing.end")
    while not ended:
        time.sleep(LOOK_EACH_S)
        door.send("Browser.getVersion")  # What came meanwhile is taken in as well.
    door.send("Target.closeTarget", {"targetId": page})
    door.detach()
    return main_thread_tasks_ms(events)


def _is_true(door: CDPSession, page: str, script: str) -> bool:
    """Ask the page, by a session that is left again: one that stays, with its debugger on, is what
    a reader does not have."""
    answers: list[dict[str, Any]] = []

    def take(message: dict[str, Any]) -> None:
        answers.append(json.loads(message["message"]))

    door.on("Target.receivedMessageFromTarget", take)
    session = door.send("Target.attachToTarget", {"targetId": page})["sessionId"]
    asked = {
        "id": 1,
        "method": "Runtime.evaluate",
        "params": {"expression": f"Boolean({script})", "returnByValue": True},
    }
    door.send("Target.sendMessageToTarget", {"sessionId": session, "message": json.dumps(asked)})
    while not answers:
        time.sleep(LOOK_EACH_S / 10)
        door.send("Browser.getVersion")
    door.send("Target.detachFromTarget", {"sessionId": session})
    door.remove_listener("Target.receivedMessageFromTarget", take)
    return answers[0].get("result", {}).get("result", {}).get("value") is True


def main_thread_tasks_ms(events: list[dict[str, Any]]) -> list[float]:
    """CPU milliseconds of the tasks of the threads that are called so."""
    main = {
        (one["pid"], one["tid"])
        for one in events
        if one.get("name") == "thread_name" and one["args"]["name"] == MAIN_THREAD
    }
    return [
        one["tdur"] / 1000
        for one in events
        if "RunTask" in one["name"] and "tdur" in one and (one["pid"], one["tid"]) in main
    ]
