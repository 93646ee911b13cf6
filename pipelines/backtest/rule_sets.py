"""Defines the rule sets to backtest, selected by name or configured in a TOML file.

    [[rules]]
    of = "ours"             # window_ms, slide_ms, allowed_lag, allowed_time_ms
    name = "short windows"
    window_ms = 10000

    [[rules]]
    of = "burrow"           # intervals, min_distance_s, expire_group_s, allowed_lag,
                            # minimum_complete, offset_refresh_s, bad_from

    [[rules]]
    of = "thresholds"       # lag_max, for_s

    [[rules]]
    of = "alerts"           # files, routing: rules of alerts and their routes; else those shipped

A file with [[rule]] is one of alert rules, and is tried as such.

Place in the walk: the arguments of `tidemark backtest` → `verdicts`. Invariant: names of rule sets
differ; a setting that a rule set does not know is an error, never passed over. Absent on purpose:
defaults of its own but for the plain thresholds, which have none.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from engine.foundation.errors import ConfigError
from pipelines.alerting.routing import routing_of
from pipelines.alerting.rule_files import ROUTING, read_document, read_rules, shipped_files
from pipelines.alerting.rules import Fault
from pipelines.backtest.playing import AlertRules
from pipelines.base.settings import Evaluation
from pipelines.rules.burrow.evaluator import Status
from pipelines.rules.burrow.over_time import BurrowRules, EvaluatorSettings
from pipelines.rules.burrow.storage import StorageSettings
from pipelines.rules.thresholds import Thresholds

OURS, BURROW, THRESHOLDS, ALERTS = "ours", "burrow", "thresholds", "alerts"
KINDS: Final = (OURS, BURROW, THRESHOLDS, ALERTS)
LAG_MAX: Final = 1_000
FOR_S: Final = 300
"""The plain thresholds without settings: what many an alert begins with."""
TRIED_MAX: Final = 16
"""Rule sets side by side: each goes through all facts of a group."""
_STORAGE: Final = ("intervals", "min_distance_s", "expire_group_s")
_EVALUATOR: Final = ("allowed_lag", "minimum_complete")


RuleSet = Evaluation | BurrowRules | Thresholds | AlertRules


@dataclass(frozen=True, slots=True)
class Tried:
    """One rule set."""

    name: str
    rules: RuleSet
    """Ours are known by their figures: what gold was, or is to be, computed with."""


def tried_of(names: str, own: Evaluation) -> list[Tried]:
    """The rule sets that are asked for: names and TOML files, with commas between them.

    `own` are the figures of the lake's own run, which ours start from. Raises ConfigError.
    """
    found = []
    for name in (name.strip() for name in names.split(",")):
        if name in KINDS:
            found.append(_tried({"of": name}, own, "RULES"))
        else:
            found += _from_file(Path(name), own)
    if len(found) > TRIED_MAX:
        raise ConfigError("RULES", names, f"at most {TRIED_MAX} rule sets")
    _differ(found, names)
    return found


def _from_file(file: Path, own: Evaluation) -> list[Tried]:
    allowed = f"{', '.join(KINDS)}, or a TOML file with [[rules]] or [[rule]], commas between"
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError("RULES", str(file), f"{allowed}: {error}") from None
    if "rule" in found:
        return [Tried(file.stem, _alert_rules([file], None, file.name))]
    rules = found.get("rules")
    if not isinstance(rules, list) or not rules:
        raise ConfigError("RULES", str(file), allowed)
    return [_tried(one, own, f"{file.name} rules {n}") for n, one in enumerate(rules, 1)]


def _tried(one: Any, own: Evaluation, where: str) -> Tried:
    if not isinstance(one, Mapping) or one.get("of") not in KINDS:
        given = one.get("of") if isinstance(one, Mapping) else one
        raise ConfigError("of", given, f"one of {', '.join(KINDS)}", where)
    settings = {name: value for name, value in one.items() if name not in ("of", "name")}
    made = _MAKERS[one["of"]](settings, own, where)
    name = one.get("name") or (made.name if isinstance(made, Thresholds) else one["of"])
    if not isinstance(name, str):
        raise ConfigError("name", name, "a text", where)
    return Tried(name, made)


def _ours(settings: dict[str, Any], own: Evaluation, where: str) -> Evaluation:
    _only(settings, ("window_ms", "slide_ms", "allowed_lag", "allowed_time_ms", "far_times"), where)
    return replace(own, **_whole(settings, where))


def _thresholds(settings: dict[str, Any], _own: Evaluation, where: str) -> Thresholds:
    _only(settings, ("lag_max", "for_s"), where)
    values = {"lag_max": LAG_MAX, "for_s": FOR_S, **_whole(settings, where)}
    return Thresholds(**values)


def _burrow(settings: dict[str, Any], _own: Evaluation, where: str) -> BurrowRules:
    _only(settings, (*_STORAGE, *_EVALUATOR, "offset_refresh_s", "bad_from"), where)
    share = settings.pop("minimum_complete", 0.0)
    if isinstance(share, bool) or not isinstance(share, int | float):
        raise ConfigError("minimum_complete", share, "a share from 0 to 1", where)
    bad_from = settings.pop("bad_from", Status.WARN.name)
    if bad_from not in Status.__members__:
        raise ConfigError("bad_from", bad_from, f"one of {', '.join(Status.__members__)}", where)
    values: dict[str, Any] = {**_whole(settings, where), "minimum_complete": float(share)}
    refresh = {name: values[name] for name in ("offset_refresh_s",) if name in values}
    return BurrowRules(
        StorageSettings(**{name: values[name] for name in _STORAGE if name in values}),
        EvaluatorSettings(**{name: values[name] for name in _EVALUATOR if name in values}),
        bad_from=Status[bad_from],
        **refresh,
    )


def _alerts(settings: dict[str, Any], _own: Evaluation, where: str) -> AlertRules:
    _only(settings, ("files", "routing"), where)
    files, routing = settings.get("files", []), settings.get("routing")
    if not isinstance(files, list) or not all(isinstance(one, str) for one in files):
        raise ConfigError("files", files, "a list of files of alert rules", where)
    if not isinstance(routing, str | None):
        raise ConfigError("routing", routing, "a file of routes", where)
    named = [Path(one) for one in files]
    return _alert_rules(named, None if routing is None else Path(routing), where)


def _alert_rules(files: Sequence[Path], routing: Path | None, where: str) -> AlertRules:
    checked = read_rules(files or shipped_files())
    document = read_document(routing or ROUTING)
    faults = [*checked.faults]
    made = None
    if isinstance(document, Fault):
        faults.append(document)
    else:
        read = routing_of(str(routing or ROUTING), document)
        faults += read.faults
        made = read.routing
    if faults or made is None:
        raise ConfigError("alerts", len(faults), "; ".join(map(str, faults)), where)
    return AlertRules(checked.rules, made)


_MAKERS: Final[Mapping[str, Callable[[dict[str, Any], Evaluation, str], RuleSet]]] = {
    OURS: _ours, BURROW: _burrow, THRESHOLDS: _thresholds, ALERTS: _alerts,
}  # fmt: skip


def _only(settings: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for name in settings:
        if name not in known:
            raise ConfigError(name, settings[name], f"only {', '.join(known)}", where)


def _whole(settings: Mapping[str, Any], where: str) -> dict[str, int]:
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(name, value, "a whole number", where)
    return dict(settings)


def _differ(found: Sequence[Tried], asked: str) -> None:
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError("RULES", asked, f"rule sets of different names, not {name!r} twice")
