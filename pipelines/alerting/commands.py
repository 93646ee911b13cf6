"""`tidemark alerts check` and `tidemark alerts test`: rules looked at before they are used.

Absent on purpose: work.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pipelines.alerting.rules import Fault

app = typer.Typer(no_args_is_help=True)
alerts = typer.Typer(no_args_is_help=True, help="Rules of alerts: check, test.")
app.add_typer(alerts, name="alerts")


@alerts.command("check")
def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Files of rules, or of routes; none: those that are shipped."),
    ] = None,
) -> None:
    """Say what is wrong with files of rules: file, rule, key, value, and what to do."""
    from pipelines.alerting.files import ROUTING, faults_of_routing, read_rules, shipped_files
    from pipelines.wording import plural

    named = files or [*shipped_files(), ROUTING]
    routing = {file: faults for file in named if (faults := faults_of_routing(file)) is not None}
    checked = read_rules(file for file in named if file not in routing)
    _end_at_faults((*checked.faults, *chain(*routing.values())), "alerts check")
    typer.echo(f"{plural(len(checked.rules), 'rule')} in {plural(len(named), 'file')}, no faults")


@alerts.command("test")
def try_out(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files of tests; none: those of shipped rules.")
    ] = None,
) -> None:
    """Try rules on rows of gold that are written down: which alerts there are, and when."""
    from pipelines.alerting.files import SHIPPED, read_document, read_rules
    from pipelines.alerting.rule_tests import cases_of, run
    from pipelines.alerting.rules import Fault
    from pipelines.wording import plural

    named = files or sorted((SHIPPED / "tests").glob("*.toml"))
    passed = failed = 0
    for file in named:
        document = read_document(file)
        if isinstance(document, Fault):
            _end_at_faults([document], "alerts test")
            continue
        cases = cases_of(str(file), document)
        _end_at_faults(cases.faults, "alerts test")
        rules = read_rules(file.parent / str(name) for name in document.get("rules", []))
        _end_at_faults(rules.faults, "alerts test")
        for case in cases.cases:
            wrong = run(case, rules.rules)
            passed, failed = passed + (not wrong), failed + bool(wrong)
            for what in wrong:
                typer.echo(f"FAILED {file.name}: {case.name}: {what}")
    typer.echo(f"{plural(passed, 'test')} passed, {failed} failed")
    if failed:
        typer.echo(f"tidemark alerts test: {plural(failed, 'test')} failed", err=True)
        raise typer.Exit(1)


def _end_at_faults(faults: Iterable[Fault], command: str) -> None:
    """Tell all faults, one a line, and end; without any, go on."""
    found = list(faults)
    for fault in found:
        typer.echo(f"tidemark {command}: {fault}", err=True)
    if found:
        raise typer.Exit(1)
