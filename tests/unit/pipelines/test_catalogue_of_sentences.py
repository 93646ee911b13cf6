"""Every sentence of the catalogue keeps the rules by which somebody can read it at 3 a.m."""

from __future__ import annotations

import re
import tomllib

import polars as pl
import pytest

from pipelines.alerting.rule_files import shipped_files
from pipelines.marts.causes.finding import CAUSES
from pipelines.sentences import causes, events, stalls
from tests import sentences, sentences_of_answers

NOUNS = (
    "message|queue|group|member|client|time|topic|row|byte|check|job|alert|window|failure|report"
)
RULES = {
    "a moment without its zone": r"\d\d:\d\d:\d\d(?! UTC)",
    "thousands without their comma": (
        r"(?<!offset )(?<![A-Z][a-z]{2} )(?<![\d,.A-Za-z@#/:[])\d{4,}(?![\d:)-])"
    ),
    "a raw moment": r"\b1[5-9]\d{8,}\b",
    "an unknown in place of a figure": r"\bNone\b|\bnan\b|unknown to unknown|\b-1\b",
    "a plural of one": rf"(?<![\d,.])1 ({NOUNS})s\b",
    "one of many": rf"(?<![\d,.])(?!1 )\d[\d,]* ({NOUNS})\b(?!s)",
    "a sentence without its capital": r"[a-z)]\. [a-z]",
    "a stop doubled": r"\.\.|;;|,,|; ;|: :|\s[;,.]",
    "an id as it came": r"#\d{9,}",
    "a moment as machines write it": r"\d{4}-\d\d-\d\dT\d\d:\d\d",
    "a range with two beginnings": r"\bsince [^.;]*UTC until ",
    "what is, is": r"\b[Ww]hat is \w+ is\b",
    "a word of a program": r"eval error|:\s*(?:no data|withheld)\.",
    "an article of another word": r"(?<![-\w])(?:[aA] [aeioAEIO]|[aA]n [bcdfgjklmnpqrstvwxyz])",
}
VERB = re.compile(
    r"\b(?:"
    r"acknowledges|answer|are|arrive|asks|be|bear|began|begins|broadcasts|came|can|cannot"
    r"|catches|changed|come|comes|consumes|costs|delivered|did|died|divides|do|does|ended"
    r"|ends|fail|failed|fails|falls|fell|find|finds|fired|fires|flaps|flushed|found|gains|gave|go"
    r"|goes|got|grew|grows|had|has|have|held|hold|holds|is|joined|keeps|kept|knows|lags"
    r"|lasted|leads|leaves|left|lies|loses|lost|made|makes|may|missed|moves|names|needs|passed"
    r"|planned|plans|pulls|ran|read|reads|report|reported|reports|restarted|rested|rests|risked"
    r"|risks|runs|said|says|sent|serves|should|shows|stands|stood|stopped|stores|subscribe"
    r"|take|takes|took|uses|wait|waits|was|went|were|will|would"
    r")\b"
)
"""What a sentence has; one that begins with what to do needs no other."""
TO_DO = re.compile(
    r"(?:Add|Ask|Compare|Decide|Find|Give|Have|Lengthen|Look|Make|Nothing|Restart|Resume|See|Send"
    r"|Set|Start|Stop|Wait)\b"
)
LINES = ("Lines of a story",)
"""Subjects that are no sentences: what stands beside a time and a source."""
NO_SENTENCES = {
    *("a topic that was left", "inhibited", "silenced"),
    *(f"{rule}, description, figures many" for rule in ("JobFailed", "JobResultLost")),
    "JobResultLate, description, figures many",
}
"""Clauses that another line begins, and texts that end with those of others."""
ENTRIES = [
    pytest.param(said, id=f"{subject} {number}: {name}")
    for subject, of_subject in sentences.SUBJECTS.items()
    for number, (name, said) in enumerate(of_subject(), 1)
]
WHOLE = [said for _, said in sentences.of_stalls()]
CAUSES_SAID = [*sentences.of_causes()]


@pytest.mark.parametrize("said", ENTRIES)
def test_a_sentence_can_be_read(said: str) -> None:
    found = {
        rule: match[0] for rule, pattern in RULES.items() if (match := re.search(pattern, said))
    }
    assert not found, said
    clauses = [one.strip().lower() for one in re.split(r"[;:.](?:\s|$)", said) if one.strip()]
    assert len(clauses) == len(set(clauses)), f"a clause stands twice: {said}"


@pytest.mark.parametrize("subject", [name for name in sentences.SUBJECTS if name not in LINES])
def test_every_sentence_has_a_verb_a_capital_and_a_stop(subject: str) -> None:
    for name, said in sentences.SUBJECTS[subject]():
        if not said or name in NO_SENTENCES:
            continue
        assert re.match(r"[A-Z0-9`{]", said), f"{name}: {said}"
        assert said[-1] in ".?", f"{name}: {said}"
        for one in re.split(r"(?<=[.]) (?=[A-Z])", said):
            assert TO_DO.match(one) or VERB.search(one.split(" ", 1)[-1]), f"{name}: {one}"


def test_what_is_wrong_comes_first_and_is_short() -> None:
    for said in WHOLE:
        headline, *_ = said.split(". ")
        assert headline[0].isupper(), said
        assert said.endswith("."), said
        assert len(headline) <= stalls.HEADLINE_MAX, headline
        assert "orders" in headline, f"it names the queue: {headline}"
        assert "shipping" in headline, f"it names the group: {headline}"


def test_a_risk_and_a_new_life_begin_with_whom_and_where_and_end_with_a_stop() -> None:
    left = "a topic that was left"  # A clause of a line that names the group, with its time.
    for name, said in (*sentences.of_risks(), *sentences.of_lives()):
        headline, *_ = said.split(". ")
        assert name == left or re.match(r"(Group shipping|Topic orders) ", said), said
        assert name == left or said.endswith("."), said
        assert len(headline) <= stalls.HEADLINE_MAX or "ranges" in name, headline


def test_every_cause_is_in_the_catalogue_and_begins_with_its_group() -> None:
    assert {name.partition(":")[0] for name, _ in CAUSES_SAID} >= {*CAUSES}
    for name, said in CAUSES_SAID:
        headline, *_ = said.split(". ")
        assert len(headline) <= causes.HEADLINE_MAX, headline
        assert said.endswith("."), said
        assert "shipping" in headline or name.startswith("STANDING_QUEUES"), headline


def test_an_answer_is_of_whole_sentences() -> None:
    subjects = (
        *("Answers of a notebook", "How far an answer goes", "Reports", "Rates behind alerts"),
        *("Rules of Prometheus", "Runs of jobs"),
    )
    for of_subject in (sentences.SUBJECTS[name] for name in subjects):
        for name, said in of_subject():
            assert re.match(r"[A-Z0-9]", said), f"{name}: {said}"
            assert said.endswith("."), f"{name}: {said}"
            headline, *_ = said.split(". ")
            assert len(headline) <= stalls.HEADLINE_MAX or "withhold" in said, headline


def test_the_texts_of_an_alert_are_whole_and_its_summary_is_short() -> None:
    for name, said in sentences.of_alerts():
        if not said:
            continue
        assert re.match(r"[A-Z0-9`]", said), f"{name}: {said}"
        if ", summary, " in name:
            assert said.endswith("."), f"{name}: {said}"
            assert len(said) <= stalls.HEADLINE_MAX, f"{name}: {said}"


def test_a_client_is_named_by_the_part_that_identifies_it_in_every_sentence() -> None:
    assert not [said for said in (*WHOLE, *dict(CAUSES_SAID).values()) if "#" in said]


def test_every_shipped_rule_names_texts_of_the_package_and_has_none_of_its_own() -> None:
    own = {
        rule["name"]: sorted(rule["annotations"])
        for path in shipped_files()
        for rule in tomllib.loads(path.read_text(encoding="utf-8")).get("rule", [])
        if rule["annotations"].keys() != {"texts", "runbook_url"}
    }
    assert not {name: keys for name, keys in own.items() if keys != ["texts"]}


def test_the_catalogue_is_what_the_templates_say() -> None:
    assert sentences.PAGE.read_text(encoding="utf-8") == sentences.page(), (
        "run `python -m tests.sentences`"
    )


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("JOINED", "1 joined; 2 joined"),
        ("SUBSCRIPTION_CHANGED", "1 changed subscription; 2 changed subscriptions"),
        ("SUBSCRIPTION_CONFLICT", "1 subscription conflict; 2 subscription conflicts"),
        ("CLIENT_ID_SHARED", "1 shared client id; 2 shared client ids"),
    ],
)
def test_changes_of_members_are_counted_in_their_plural(kind: str, said: str) -> None:
    asked = sentences_of_answers.ONE
    counted = [
        events.of_rebalances(asked, pl.DataFrame({"kind": [kind] * many})) for many in (1, 2)
    ]
    assert "; ".join(one.partition("known: ")[2].removesuffix(".") for one in counted) == said
