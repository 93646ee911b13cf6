"""Each page, question and command that a rule or a runbook sends people to is there."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboards.pages.shell import PAGES
from pipelines.alerting.rule_files import SHIPPED, read_rules, shipped_files
from pipelines.tm.handle import QUESTIONS
from tidemark import COMMANDS, load

ROOT = Path(__file__).parents[2]
RUNBOOKS = ROOT / "docs" / "runbooks.md"
PROMETHEUS = SHIPPED / "prometheus" / "rules.yml"
OF_ONE_THING = {"group", "topic"}
"""What has a page of its own."""
PAGE_OF = re.compile(r"\bpage of (?:the )?([a-z]+(?: [a-z]+)?)")
PAGE_POSSESSIVE = re.compile(r"\b([a-z]+)'s page\b")
QUESTION = re.compile(r"\btm\.([a-z_]+)")
COMMAND = re.compile(r"`tidemark ([^`]*)`")
WORD = re.compile(r"[a-z][a-z-]*")


def faults_of(text: str) -> Iterator[str]:
    """What a text sends people to that is not there."""
    titles = {one.title.lower() for one in PAGES if one.in_navigation}
    for found in PAGE_OF.findall(text):
        if not {found, found.split()[0]} & titles:
            yield f"page of {found}"
    for found in PAGE_POSSESSIVE.findall(text):
        if found not in OF_ONE_THING:
            yield f"{found}'s page"
    for found in QUESTION.findall(text):
        if found not in QUESTIONS:
            yield f"tm.{found}"
    for found in COMMAND.findall(text):
        yield from _faults_of_command(found)


def _faults_of_command(words: str) -> Iterator[str]:
    """A command line: its commands one below the other, and its options."""
    name, *rest = words.split()
    if name not in COMMANDS:
        yield f"tidemark {name}"
        return
    command: Any = load(name)
    for word in rest:
        below = getattr(command, "commands", None)
        if word.startswith("--"):
            if word not in {option for one in command.params for option in one.opts}:
                yield f"tidemark {words}: {word}"
        elif below is not None and WORD.fullmatch(word):
            if word not in below:
                yield f"tidemark {words}: {word}"
                return
            command = below[word]


def of_rules() -> list[tuple[str, str]]:
    """Rule and text of all that is shipped."""
    found = []
    for file in shipped_files():
        for rule in tomllib.loads(file.read_text())["rule"]:
            found += [(rule["name"], text) for text in rule["annotations"].values()]
    return found


def test_what_a_rule_sends_people_to_is_there() -> None:
    faults = {f"{rule}: {what}" for rule, text in of_rules() for what in faults_of(text)}
    assert not faults


def test_what_a_runbook_sends_people_to_is_there() -> None:
    assert not list(faults_of(RUNBOOKS.read_text()))
    assert not list(faults_of(PROMETHEUS.read_text()))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("See on the page of retries which fail.", "page of retries which"),
        ("It is shown on the queue's page.", "queue's page"),
        ("Ask `tm.nothing`.", "tm.nothing"),
        ("Say `tidemark nothing`.", "tidemark nothing"),
        ("Say `tidemark admin dlq resend g`.", "tidemark admin dlq resend g: resend"),
        (
            "Say `tidemark admin dlq list g --everything`.",
            "tidemark admin dlq list g --everything: --everything",
        ),
    ],
)
def test_what_is_not_there_is_found(text: str, fault: str) -> None:
    assert list(faults_of(text)) == [fault]


def test_every_rule_has_a_section_among_the_runbooks_and_every_section_a_rule() -> None:
    sections = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)
    rules = [rule.name for rule in read_rules(shipped_files()).rules]
    assert sorted(sections) == sorted(rules)
