"""Whose alerts are, where their rules name nobody: by the owners of the receivers' file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.foundation.errors import ConfigError
from pipelines.alerting.alert_context import OWNERS_MAX, Owned, owner_of, owners_of
from pipelines.alerting.alerts import Notice
from pipelines.alerting.channels.others import title_and_text
from pipelines.alerting.channels.receivers import receivers_of
from pipelines.alerting.commands import app
from pipelines.alerting.evaluating import Looked
from pipelines.alerting.matchers import matcher_of
from pipelines.alerting.notification_settings import owners_in
from pipelines.alerting.routing import Route, Routing
from pipelines.alerting.rule_files import read_rules, shipped_files
from pipelines.alerting.rules import Rule
from pipelines.alerting.step import Known, judge, notify
from pipelines.base.settings import SECOND_US
from tests.alert_stories import NOON_US, behind, rows, rule

PAYMENTS = Owned("payments team", (matcher_of('group=~"pay.*"'),))
PAY_IN_SHOP = Owned("shop team", (matcher_of('group="pay"'), matcher_of('cluster="shop"')))
ALL = Owned("platform team", (matcher_of('alertname=~".+"'),))
TELLING = """
[[receivers]]
name = "mail"
kind = "webhook"
url = "https://hooks.internal"
[[owners]]
owner = "payments team"
matchers = ['group=~"pay.*"']
"""


def test_the_first_entry_that_matches_says_whose_an_alert_is() -> None:
    labels = {"group": "pay", "cluster": "shop"}
    assert owner_of(rule(), labels, (PAYMENTS, PAY_IN_SHOP, ALL)) == "payments team"
    assert owner_of(rule(), labels, (PAY_IN_SHOP, PAYMENTS, ALL)) == "shop team"
    assert owner_of(rule(), {**labels, "cluster": "c"}, (PAY_IN_SHOP, ALL)) == "platform team"
    assert owner_of(rule(), {"group": "orders"}, (PAYMENTS, PAY_IN_SHOP)) == ""


def test_severity_and_name_of_the_rule_choose_as_labels_do() -> None:
    worst = Owned("on-call", (matcher_of('severity="critical"'), matcher_of('alertname="Behind"')))
    assert owner_of(rule(severity="critical"), {}, (worst,)) == "on-call"
    assert owner_of(rule(severity="warning"), {}, (worst,)) == ""


def test_an_owner_that_the_rule_names_itself_stays() -> None:
    assert owner_of(rule(owner="lag team"), {"group": "pay"}, (PAYMENTS, ALL)) == "lag team"


def notice_of(judged: Rule, row: dict[str, object], owners: tuple[Owned, ...]) -> Notice:
    """The first that is notified of a rule that holds for a row of `group_state`."""
    known, routing = Known(), Routing(Route("mail", group_wait_us=0))
    for at_s in range(0, 1200, 30):
        now_us = NOON_US + at_s * SECOND_US
        look = Looked(now_us, {"group_state": rows("group_state", row)})
        decided = judge(known, [judged], look, now_us=now_us, owners=owners)
        decided = notify(decided, [judged], routing, silences=(), now_us=now_us)
        if decided.notices:
            return decided.notices[0]
        known = decided.known
    raise AssertionError(f"nobody was notified of {known.alerts}")


def test_the_notice_of_an_alert_says_whose_it_is_and_so_do_the_texts_of_its_rule() -> None:
    judged = rule(annotations={"summary": "{{ owner }}: look at {{ labels.group }}"})
    orders = Owned("orders team", (matcher_of('group="orders"'),))
    notice = notice_of(judged, behind(3_600), (PAYMENTS, orders))
    assert notice.alerts[0].annotations["summary"] == "orders team: look at orders"
    assert "Owner: orders team" in title_and_text(notice)[1]


def test_the_notice_of_a_rule_that_is_shipped_carries_the_owner() -> None:
    (shipped,) = [one for one in read_rules(shipped_files()).rules if one.name == "GroupStopped"]
    row = {**behind(3_600), "group": "payments", "state": "STOPPED", "members": 2}
    text = title_and_text(notice_of(shipped, row, (PAYMENTS, ALL)))[1]
    assert shipped.owner == ""
    assert "Owner: payments team" in text


def test_an_alert_that_goes_on_gets_the_owner_that_the_file_says_by_now() -> None:
    tables = {"group_state": rows("group_state", behind(90))}
    first = judge(Known(), [rule()], Looked(NOON_US, tables), now_us=NOON_US, owners=(ALL,))
    later_us = NOON_US + 5 * SECOND_US
    second = judge(first.known, [rule()], Looked(later_us, tables), now_us=later_us)
    assert [one.owner for one in first.known.alerts] == ["platform team"]
    assert [one.owner for one in second.known.alerts] == [""]


@pytest.mark.parametrize(
    ("entry", "key", "what"),
    [
        ({"matchers": ['group="a"']}, "owner", "must say whose they are"),
        ({"owner": " ", "matchers": ['group="a"']}, "owner", "must say whose they are"),
        ({"owner": "a\nb", "matchers": ['group="a"']}, "owner", "in one line"),
        ({"owner": 7, "matchers": ['group="a"']}, "owner", "must say whose they are"),
        ({"owner": "a"}, "matchers", "must be a list of matchers"),
        ({"owner": "a", "matchers": []}, "matchers", "1 to 20"),
        ({"owner": "a", "matchers": ["group"]}, "matchers", "is no matcher"),
        ({"owner": "a", "matchers": ['group=~"("']}, "matchers", "cannot be read"),
        ({"owner": "a", "matchers": ['owner="b"']}, "matchers", "name another label"),
        ({"owner": "a", "matchers": ['group="a"'], "match": 1}, "match", "matchers"),
    ],
)
def test_a_bad_entry_is_refused_with_its_place(
    entry: dict[str, object], key: str, what: str
) -> None:
    good = {"owner": "a", "matchers": ['group="a"']}
    owners, (fault,) = owners_of("telling.toml", [good, entry])
    assert owners == ()
    assert (fault.file, fault.rule, fault.key) == ("telling.toml", "owners 2", key)
    assert what in fault.what


def test_there_are_two_hundred_entries_at_most() -> None:
    good = {"owner": "a", "matchers": ['group="a"']}
    assert len(owners_of("f", [good] * OWNERS_MAX)[0]) == OWNERS_MAX
    owners, (fault,) = owners_of("f", [good] * (OWNERS_MAX + 1))
    assert owners == ()
    assert "at most 200" in fault.what


def test_a_file_with_a_bad_entry_is_refused_as_a_whole() -> None:
    assert owners_in("f", receivers_of(TELLING, "f")) == (PAYMENTS,)
    wrong = TELLING.replace("matchers", "matches")
    with pytest.raises(ConfigError, match="owners 1: matches"):
        owners_in("f", receivers_of(wrong, "f"))


def checked(file: Path, text: str) -> tuple[int, str]:
    file.write_text(text)
    done = CliRunner().invoke(app, ["alerts", "check", str(file)])
    return done.exit_code, done.output


def test_the_check_of_files_reads_receivers_routes_and_owners(tmp_path: Path) -> None:
    file = tmp_path / "telling.toml"
    assert checked(file, TELLING) == (0, "0 rules in 1 file, no faults\n")
    code, said = checked(file, TELLING.replace("pay.*", "pay("))
    assert (code, "telling.toml: rule owners 1: matchers" in said) == (1, True)
    code, said = checked(file, TELLING + '[routing]\nreceiver = "nobody"\n')
    assert (code, "'nobody'" in said) == (1, True)
    code, said = checked(file, TELLING.replace("webhook", "pigeon"))
    assert (code, "receiver mail" in said) == (1, True)


def test_the_check_of_files_answers_as_json(tmp_path: Path) -> None:
    file = tmp_path / "telling.toml"
    file.write_text(TELLING)
    done = CliRunner().invoke(app, ["alerts", "check", str(file), "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {"rules": 0, "files": [str(file)], "faults": []}

    file.write_text(TELLING.replace("owner =", "who ="))
    done = CliRunner().invoke(app, ["alerts", "check", str(file), "--json"])
    assert done.exit_code == 1
    answer = json.loads(done.stdout)["faults"]
    assert [(one["file"], one["rule"], one["key"]) for one in answer] == [
        (str(file), "owners 1", "who"),
        (str(file), "owners 1", "owner"),
    ]
