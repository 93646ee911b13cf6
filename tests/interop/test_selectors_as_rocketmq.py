"""Row D3: our SQL92 selectors and RocketMQ 5.5's own filter agree on every case.

Hypothesis makes the cases; one Java program answers all of them.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.foundation.errors import RequestRefused
from engine.protocol.sql92 import compile_selector
from engine.protocol.sql92.java_values import NotComparable
from tests import selectors
from tests.interop.java_clients import CHECK_TIMEOUT_S, JavaChecks

EXAMPLES = 1500
Case = tuple[str, dict[str, str]]


def our_answer(case: Case) -> str:
    expression, properties = case
    try:
        value = compile_selector(expression).evaluate(properties)
    except RequestRefused:
        return "REFUSED"
    except NotComparable:
        return "ERROR"
    return "NULL" if value is None else str(value).upper()


def made_cases() -> list[Case]:
    """The same cases in each run: conditions, conditions with something behind them, word salad."""
    cases: list[Case] = []

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.one_of(
            selectors.sound,
            selectors.sound,
            selectors.careless,
            st.tuples(selectors.sound, selectors.word_salad).map(" ".join),
            selectors.word_salad,
        ),
        selectors.properties,
    )
    def collect(expression: str, properties: dict[str, str]) -> None:
        cases.append((expression, properties))

    collect()
    return cases


def as_line(case: Case) -> str:
    expression, properties = case
    words = [expression, *(text for pair in properties.items() for text in pair)]
    return " ".join(b64encode(word.encode("utf-8", "replace")).decode() for word in words)


@pytest.mark.timeout(CHECK_TIMEOUT_S)
def test_row_d3_selectors_mean_what_they_mean_to_rocketmq(
    java_checks: JavaChecks, tmp_path: Path
) -> None:
    cases, answers = made_cases(), tmp_path / "answers"
    questions = tmp_path / "cases"
    questions.write_text("".join(f"{as_line(case)}\n" for case in cases))
    verdict = java_checks.run("SelectorCases", str(questions), str(answers))
    assert verdict == f"PASS SelectorCases {len(cases)} cases", verdict
    theirs = answers.read_text().splitlines()
    differing = [
        f"{case!r}: RocketMQ {said}, here {ours}"
        for case, said in zip(cases, theirs, strict=True)
        if said != (ours := our_answer(case))
    ]
    assert not differing, "\n".join(differing[:20])
    for answer in ("TRUE", "FALSE", "NULL", "ERROR", "REFUSED"):
        share = theirs.count(answer) / len(theirs)
        assert share > 0.01, f"{answer} is {share:.1%} of the answers: the cases miss it"
