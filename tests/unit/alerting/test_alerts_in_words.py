"""What `tidemark alerts` prints: what a person needs, and no line that somebody else wrote."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pipelines.alerting.alert_queries import ShownAlert, Wanted, new_silence, recurring_of, urgency
from pipelines.alerting.alerts import Course, State
from pipelines.alerting.matchers import matchers_of
from pipelines.alerting.rule_status import JUDGED, JudgedRule
from pipelines.alerting.store.people import Ack
from pipelines.alerting.terminal import alert_in_words, list_in_words, silence_in_words
from pipelines.base.settings import DAY_US, HOUR_US, MINUTE_US, SECOND_US
from tests.alert_stories import NOON_US
from tests.integration.alerting.stores import an_alert

AT_US = NOON_US
ALERT = an_alert(
    annotations={
        "summary": "payments stands",
        "evidence": "14 commits, offset unchanged.",
        "first_step": "Look at the client.",
        "page_url": "https://t.example/group/payments",
        "notebook_url": "javascript:alert(1)",
        "runbook_url": "runbooks.md#stalled-window",
    },
    figures={"time_lag_ms": 185_000, "lag_messages": 12_345, "head": None, "client_id": "c1"},
    active_at_us=AT_US - 3 * MINUTE_US,
    fired_at_us=AT_US - 2 * MINUTE_US,
    last_true_us=AT_US - 5 * SECOND_US,
    muted="inhibited by PipelineLate",
    course=Course(phase_us=123_456_789),
)
ACK = Ack(ALERT.fingerprint, ALERT.active_at_us, "ann", "on it", AT_US - MINUTE_US)
SILENCE = new_silence(
    "ab12",
    ['group="payments"'],
    begin_us=AT_US - HOUR_US,
    end_us=AT_US + HOUR_US,
    author="bob",
    comment="a release",
)
FARED = JudgedRule("StalledWindow", AT_US, AT_US, JUDGED, 3, "", AT_US)


def test_an_alert_is_what_somebody_reads_at_night() -> None:
    shown_alert = ShownAlert(ALERT, ACK, (SILENCE,), FARED)
    assert (
        "\n".join(alert_in_words(shown_alert, AT_US))
        == f"""\
StalledWindow: payments stands
  state       firing: it is so since 2026-03-01 11:57:00 UTC (3 min), fires since \
2026-03-01 11:58:00 UTC; seen last at 2026-03-01 11:59:55 UTC
  severity    critical
  owner       payments-team
  labels      cluster=shop, group=payments, queue=0
  evidence    14 commits, offset unchanged.
  do first    Look at the client.
  figures     client_id c1, head unknown, lag_messages 12,345, time_lag_ms 3 min 5 s
  page        https://t.example/group/payments
  runbook     runbooks.md#stalled-window
  acked       by ann at 2026-03-01 11:59:00 UTC: on it
  silenced    ab12  active until 2026-03-01 13:00:00 UTC (1 h left)  group="payments"  \
bob: a release
  notified    nobody now: inhibited by PipelineLate
  rule        judged at 2026-03-01 12:00:00 UTC: 3 rows
  id          {ALERT.fingerprint}"""
    )


def test_one_that_is_over_says_when_and_after_how_long() -> None:
    over = replace(ALERT, state=State.RESOLVED, resolved_at_us=AT_US, owner="", muted="")
    lines = list(alert_in_words(ShownAlert(over), AT_US + DAY_US))
    assert "  state       resolved at 2026-03-01 12:00:00 UTC, after 3 min" in lines
    assert "  owner       nobody" in lines


def test_machines_get_what_people_said_and_nothing_internal() -> None:
    answer = json.loads(json.dumps(ShownAlert(ALERT, ACK, (SILENCE,)).as_json()))
    assert answer["ack"] == {
        "fingerprint": ALERT.fingerprint,
        "active_at_us": ALERT.active_at_us,
        "author": "ann",
        "comment": "on it",
        "acked_us": ACK.acked_us,
    }
    assert answer["silences"][0]["comment"] == "a release"
    assert "course" not in answer
    assert ShownAlert(ALERT).as_json()["ack"] is None


HOSTILE = "g\nFORGED  FIRING\u202e\x1b[2J\x00"


@pytest.mark.parametrize("where", ["rule", "owner", "severity", "reason", "muted"])
def test_no_name_of_somebody_else_makes_a_line_or_turns_one(where: str) -> None:
    alert = replace(
        an_alert(
            labels={"group": HOSTILE, HOSTILE: HOSTILE},
            annotations=dict.fromkeys(("summary", "evidence", "first_step"), HOSTILE),
            figures={HOSTILE: HOSTILE},
        ),
        **{where: HOSTILE},
    )
    ack = replace(ACK, author=HOSTILE, comment=HOSTILE)
    silence = replace(
        SILENCE, author=HOSTILE, comment=HOSTILE, matchers=matchers_of([f"a={HOSTILE}"])
    )
    shown_alert = ShownAlert(alert, ack, (silence,), FARED)
    lines = [*alert_in_words(shown_alert, AT_US), *list_in_words([shown_alert], limit=5)]
    lines.append(silence_in_words(silence, AT_US))
    assert all(line.isprintable() for line in lines)
    assert not [line for line in lines if line.startswith("FORGED")]


def test_a_list_has_a_line_an_alert_the_worst_first_and_counts_the_rest() -> None:
    quiet = an_alert(1, severity="info", owner="")
    waits = an_alert(2, state=State.PENDING, fired_at_us=None)
    warned = an_alert(3, severity="warning")
    worst = an_alert(4)
    shown_alerts = [ShownAlert(one) for one in sorted((quiet, waits, warned, worst), key=urgency)]
    lines = list(list_in_words(shown_alerts, limit=3))
    assert lines[0].split() == [
        "ALERT",
        "STATE",
        "SEVERITY",
        "SINCE",
        "(UTC)",
        "OWNER",
        "RULE",
        "GROUP",
        "WHAT",
    ]
    assert [line.split()[0] for line in lines[1:4]] == [
        one.fingerprint[:8] for one in (worst, warned, waits)
    ]
    assert "payments-team  StalledWindow  payments  queue 4 stands still" in lines[1]
    assert lines[4] == "and 1 alert more: --limit, or ask for fewer"


def test_who_is_wanted_by_name_is_not_found_as_a_part_of_another_name() -> None:
    assert Wanted(group="payments").takes(ALERT)
    assert not Wanted(group="pay").takes(ALERT)
    assert not Wanted(owner="payments").takes(ALERT)
    assert Wanted(matchers=matchers_of(['queue=~"0|1"'])).takes(ALERT)
    over = replace(ALERT, state=State.RESOLVED)
    assert not Wanted().takes(over)
    assert Wanted(state="RESOLVED").takes(over)
    assert Wanted(all_of_them=True).takes(over)


@pytest.mark.parametrize(
    ("days", "zone", "said"),
    [
        ("", "UTC", "every day at 22:00 for 8 h (UTC), next 2026-03-01 22:00:00 UTC"),
        # Noon of a Sunday; in New York it is winter time.
        (
            "mon",
            "America/New_York",
            "mon at 22:00 for 8 h (America/New_York), next 2026-03-03 03:00:00 UTC",
        ),
    ],
)
def test_a_silence_that_comes_back_says_when_next(days: str, zone: str, said: str) -> None:
    recurring = recurring_of(days, "22:00", 8 * HOUR_US, zone)
    silence = replace(SILENCE, recurring=recurring, end_us=AT_US + 30 * DAY_US)
    assert f"waits: {said}, until 2026-03-31 12:00:00 UTC (30 d 0 h left)" in silence_in_words(
        silence, AT_US
    )


def test_a_silence_that_does_not_come_back_any_more_names_no_next_time() -> None:
    recurring = recurring_of("", "22:00", HOUR_US, "UTC")
    assert "next" not in silence_in_words(replace(SILENCE, recurring=recurring), AT_US)
