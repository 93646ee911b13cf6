"""Checks templates for alert texts and renders them in Jinja's sandbox.

A template has names, filters, if and default; no loops, calls, macros or arithmetic: what it makes
is bounded by what it is given. It may name the figures of the alert (columns of its rule's row),
`labels`, `alertname`, `severity`, `owner`, `evidence`, `since` (when it began), `moment` (when it
was seen to hold last), and `matched` (how many rows held).

Invariant: a template that was checked names nothing that is not there; its texts are at most
TEXT_MAX characters; one that fails all the same, at an unknown figure, says so. Absent on purpose:
escaping, for who shows a text knows in what.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from jinja2 import StrictUndefined, Template, TemplateError, nodes
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pipelines.alerting.conditions import unknown_name
from pipelines.base import wording
from pipelines.base.time_units import moment_at, utc_text
from pipelines.base.wording import AtLeast, bound_of
from pipelines.reading.moment import is_observer
from pipelines.sentences.figures import client, moment, number_of

TEMPLATE_MAX: Final = 1_000
"""Characters of a template."""
VALUE_MAX: Final = 300
"""Characters of one value in a text: names that others gave may be long."""
SENTENCE_MAX: Final = 1_000
"""And of one that is a sentence of the platform."""
_SENTENCES: Final = ("evidence", "headline", "reason")
TEXT_MAX: Final = 2_000
"""Characters of a text."""

ALWAYS: Final = (
    "labels", "alertname", "severity", "owner", "evidence", "since", "moment", "matched",
)  # fmt: skip
"""What every template may name."""

_REFUSED: Final = (
    nodes.For, nodes.Call, nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.Import,
    nodes.FromImport, nodes.Include, nodes.Extends, nodes.Block, nodes.With, nodes.Assign,
    nodes.AssignBlock, nodes.Mul, nodes.Pow, nodes.Add, nodes.Concat, nodes.Mod, nodes.Scope,
)  # fmt: skip


class TemplateFault(Exception):
    """A template that cannot be used: what is wrong, and what would be right."""


def _environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, autoescape=False, finalize=_known
    )
    made.filters = {
        "count": _worded(wording.count),
        "duration": _worded(wording.duration),
        "plural": _plural,
        "client": _client,
        "utc": _utc,
        "spoken": _spoken,
        "observed": _is_observed,
        "default": lambda value, otherwise="unknown": otherwise if value is None else value,
    }
    return made


def _worded(shown: Callable[[Any], str]) -> Callable[[Any], str]:
    """A filter that says of a lower bound that it is one."""

    def said(value: Any) -> str:
        return f"at least {shown(int(value))}" if isinstance(value, AtLeast) else shown(value)

    return said


def _plural(value: Any, noun: str) -> str:
    """A count of something, as `1 queue`."""
    said = number_of(None if value is None else int(value), noun)
    return f"at least {said}" if isinstance(value, AtLeast) else said


def _client(value: object) -> str:
    """A client by what identifies it."""
    return client(None if value is None else str(value))


def _utc(value: object) -> str:
    """A moment as `2026-03-01 19:10:03 UTC`."""
    try:
        return moment(datetime.fromisoformat(str(value)), day=True)
    except ValueError:
        return wording.UNKNOWN if value is None else str(value)


def _known(value: object) -> object:
    return wording.UNKNOWN if value is None else value


def _spoken(value: object) -> str:
    return wording.UNKNOWN if value is None else wording.spoken(str(value))


def _is_observed(emitter: object) -> bool:
    """Whether the emitter of this name reports a broker from outside."""
    return isinstance(emitter, str) and is_observer(emitter)


_TEMPLATES: Final = _environment()


def check_template(text: str, figures: Collection[str], labels: Collection[str]) -> None:
    """Raise TemplateFault when a template cannot be read, names what is not there, or does what it
    may not. figures and labels: the names of those that its alerts will have."""
    if len(text) > TEMPLATE_MAX:
        raise TemplateFault(f"it has {len(text)} characters; at most {TEMPLATE_MAX} are taken")
    try:
        tree = _TEMPLATES.parse(text)
    except TemplateError as error:
        raise TemplateFault(f"it cannot be read: {error}") from None
    for node in tree.find_all(_REFUSED):
        raise TemplateFault(
            f"{type(node).__name__.lower()} in line {node.lineno}: a template names values, "
            "and has filters and if; nothing else"
        )
    for used in tree.find_all(nodes.Filter):
        if used.name not in _TEMPLATES.filters:
            raise TemplateFault(unknown_name(used.name, _TEMPLATES.filters, "filter"))
    for part in tree.find_all(nodes.Getattr):
        is_label = isinstance(part.node, nodes.Name) and part.node.name == "labels"
        if is_label and part.attr not in labels:
            raise TemplateFault(unknown_name(part.attr, dict.fromkeys(labels), "label"))
    known = dict.fromkeys((*figures, *ALWAYS))
    for name in sorted(find_undeclared_variables(tree)):
        if name not in known:
            raise TemplateFault(unknown_name(name, known, "value"))


@lru_cache(maxsize=4_096)
def _template(text: str) -> Template:
    return _TEMPLATES.from_string(text)


class _Labels(dict[str, str]):
    """Labels by name; one that the alert lacks, as its row has none, is an empty text."""

    def __missing__(self, _name: str) -> str:
        return ""


def rendered(
    templates: Mapping[str, str],
    *,
    labels: Mapping[str, str],
    figures: Mapping[str, bool | float | int | str | None],
    given: Mapping[str, str | int],
) -> dict[str, str]:
    """The texts that templates make; None among the figures is the word unknown, or `at least`
    with its lower bound.

    A template that was never checked and fails makes a text that says so.
    """
    values: dict[str, Any] = {name: _shown(name, value) for name, value in figures.items()}
    for name, value in figures.items():
        bound = figures.get(bound_of(name))
        if value is None and isinstance(bound, int):
            values[name] = AtLeast(bound)
    values |= {name: _shown(name, value) for name, value in given.items()}
    values["labels"] = _Labels({name: _cut(value) for name, value in labels.items()})
    made = {}
    for name, text in templates.items():
        if "{" not in text:
            made[name] = text
            continue
        try:
            made[name] = _cut(_template(text).render(values), TEXT_MAX)
        except (TemplateError, TypeError, ValueError, ArithmeticError) as error:
            made[name] = _cut(f"(this text could not be made: {error})", TEXT_MAX)
    return made


def since_text(moment_us: int | None) -> str:
    """A moment of data time in texts."""
    return (
        wording.UNKNOWN if moment_us is None else utc_text(moment_at(moment_us), timespec="seconds")
    )


def _shown(name: str, value: object) -> object:
    if not isinstance(value, str):
        return value
    return _cut(value, SENTENCE_MAX if name in _SENTENCES else VALUE_MAX)


def _cut(text: str, length_max: int = VALUE_MAX) -> str:
    return text if len(text) <= length_max else f"{text[: length_max - 1]}…"
