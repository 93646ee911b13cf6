"""Runs the alerting process: reads gold, evaluates rules, stores steps and sends notices.

Place in the walk: around everything else in this room; `tidemark alerts run`.

Invariant: one process of several leads, by a lease; whoever does not lead, or could not store his
step, has decided nothing: he loads what is stored and begins anew. A broken file, a table that
cannot be read and a database that is away are logged once, and tried again. Absent on purpose:
verdicts, and how a channel is spoken to.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from engine.foundation.errors import ConfigError, LakeError
from pipelines.alerting.alert_context import Owned
from pipelines.alerting.alerts import Alert
from pipelines.alerting.evaluating import Looked
from pipelines.alerting.gold_view import Gold
from pipelines.alerting.outbox.courier import Channel, Courier
from pipelines.alerting.routing import Routing
from pipelines.alerting.rule_files import read_rules
from pipelines.alerting.rule_status import JudgedRule, judged_rules
from pipelines.alerting.rules import Rule, RuleSet
from pipelines.alerting.silence_rows import silences_of
from pipelines.alerting.sql import Answering, answered
from pipelines.alerting.state_rows import known_of, step_of
from pipelines.alerting.step import Decided, Known, judge, notify
from pipelines.alerting.store import people, steps
from pipelines.alerting.store.steps import Step
from pipelines.alerting.store.tidying import tidy
from pipelines.base.settings import MINUTE_US, SECOND_US
from pipelines.database import leads
from pipelines.database.database import Database, LeadHeld, LeadLost, StoreUnavailable
from pipelines.database.leads import Lead, Sight
from pipelines.database.limits import OPEN_MAX
from pipelines.lake.lake import first_line
from pipelines.reading.moment import Moment

LOOK_S: Final = 1.0
"""How often it looks for a new cycle of gold, and for files that were changed."""
LEASE_US: Final = 15 * SECOND_US
OF_LAKE_EACH_US: Final = 5 * SECOND_US
"""How often rules about the lake itself are judged while no cycle comes."""
STAY_EACH_S: Final = LEASE_US / SECOND_US / 3
"""How often a leader says that it is there while it is at work for longer than that."""
WORK_MAX_S: Final = 600.0
"""A look that takes longer is stuck: another process may lead."""
FIGURES_EACH_US: Final = MINUTE_US
"""How often the figures of alerts that go on are stored."""
TIDY_EACH_US: Final = 10 * MINUTE_US
CARRY_EACH_US: Final = 5 * SECOND_US
"""How often changes are brought into the lake: each commit is a file, and nobody waits for it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NotificationSettings:
    """Where alerts go: routes and their receivers' channels."""

    routing: Routing
    channels: Mapping[str, Channel]
    owners: Sequence[Owned] = ()
    """The owners of alerts whose rules name nobody."""


class Places(Protocol):
    """Reads where alerts go; raises ConfigError for a file that is wrong."""

    @property
    def files(self) -> Sequence[Path]:
        """What it reads."""
        ...

    def read(self) -> NotificationSettings | None:
        """The settings in the files; None when nobody is to be notified."""
        ...


@dataclass(slots=True)
class _Files:
    """Files that are read again when they have changed."""

    paths: Callable[[], Sequence[Path]]
    _seen: object = None

    def have_changed(self) -> bool:
        """Since this was asked last. A file that is gone has changed once."""
        now = [(path, *_stamp(path)) for path in self.paths()]
        changed, self._seen = now != self._seen, now
        return changed


@dataclass(slots=True)
class _State:
    """What the leader knows."""

    lead: Lead
    known: Known
    written: dict[str, Alert]
    place: tuple[str, int] | None
    judged: dict[str, JudgedRule]
    """How rules fared when they were judged last, as it is stored."""
    opened: int
    """Of the database: all of this is what that one holds."""
    unknown: frozenset[str] = frozenset()
    """Emitters of which nothing was known when rules were judged last."""
    judged_us: int = 0
    figures_us: int = 0
    tidied_us: int = 0


class Alerting:
    """Watches one lake until it is stopped."""

    def __init__(
        self,
        gold: Gold,
        database: Database,
        *,
        lake: str,
        holder: str,
        rules: Callable[[], Sequence[Path]],
        places: Places,
        courier: Callable[[Mapping[str, Channel]], Courier],
        now_us: Callable[[], int],
        carry: Callable[[], int] = lambda: 0,
        answering: Answering = answered,
    ) -> None:
        """lake: the name of the lake in the database. holder: of this process, for people. carry:
        brings changes of alerts into the lake; LakeError when it takes none. answering: works out
        the queries of rules.
        """
        self._gold = gold
        self._database = database
        self._lake = lake
        self._holder = holder
        self._rules = RuleSet()
        self._judges_anew = True
        """Rules, or owners of groups, have changed since gold was judged."""
        self._moment: Moment | None = None
        """The last complete cycle, as far as the lake could be read."""
        self._rule_paths = rules
        self._rule_files = _Files(rules)
        self._places = places
        self._place_files = _Files(lambda: places.files)
        self._settings: NotificationSettings | None = None
        self._courier = courier({})
        self._now_us = now_us
        self._carry = carry
        self._answering = answering
        self._carried_us = 0
        self._state: _State | None = None
        self._sight: Sight | None = None
        self._said: dict[str, str] = {}
        self.look_s: float | None = None
        """How long the last look took; None before the first one."""
        self._at_work_since_s = time.monotonic()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="alerting")

    @property
    def leads(self) -> bool:
        """Does this process lead, as far as it knows?"""
        return self._state is not None

    @property
    def rules_in_force(self) -> int:
        """How many rules it judges by."""
        return len(self._rules.rules)

    async def run(self, until: asyncio.Event) -> None:
        """Look, decide and notify until asked to stop."""
        loop = asyncio.get_running_loop()
        delivering: asyncio.Task[None] | None = None
        staying = asyncio.create_task(self._stay(until))
        try:
            while not until.is_set():
                self._at_work_since_s = time.monotonic()
                if await loop.run_in_executor(self._thread, self.look):
                    self._courier.wake()
                await loop.run_in_executor(self._thread, self.keep_history)
                if delivering is None and self.leads:
                    delivering = asyncio.create_task(self._courier.run(until))
                if delivering is not None and delivering.done():
                    delivering.result()
                with suppress(TimeoutError):
                    await asyncio.wait_for(until.wait(), LOOK_S)
        finally:
            until.set()
            await staying
            if delivering is not None:
                await delivering
            await loop.run_in_executor(self._thread, self._give_back)
            self._thread.shutdown()

    async def _stay(self, until: asyncio.Event) -> None:
        """Say that this process leads, however long it looks: else two of them on a slow lake would
        take the lead from each other, and neither would ever store what it decided."""
        loop = asyncio.get_running_loop()
        while not until.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(until.wait(), STAY_EACH_S)
            state = self._state
            if state is None or time.monotonic() - self._at_work_since_s > WORK_MAX_S:
                continue
            with suppress(StoreUnavailable, LeadLost):  # Who stores next finds out.
                staying = partial(leads.renew, self._database, state.lead, now_us=self._now_us())
                await loop.run_in_executor(None, staying)

    def look(self) -> bool:
        """Look once; whether there was something new to send."""
        began_s = time.monotonic()
        try:
            return self._look()
        finally:
            self.look_s = time.monotonic() - began_s

    def _look(self) -> bool:
        self._read_files()
        try:
            state = self._state
            if state is None:
                state = self._state = self._begun()
                if state is None:
                    return False
                self._keep_history()  # Before there are new changes: is the database an older copy?
            step = self._step(state)
        except (StoreUnavailable, LeadLost) as error:
            self._state = None
            self._judges_anew = True  # What was judged by new rules is perhaps not stored.
            self._say("store", str(error))
            return False
        self._say("store", "")
        return step

    def keep_history(self) -> None:
        """As the leader, and when it is time: bring changes of alerts into the lake."""
        now_us = self._now_us()
        is_time = now_us - self._carried_us >= CARRY_EACH_US or now_us < self._carried_us
        if self.leads and is_time:
            self._keep_history()
            self._carried_us = now_us

    def _keep_history(self) -> None:
        try:
            self._carry()
        except (LakeError, StoreUnavailable) as error:
            self._say("history", str(error))
        except Exception as error:  # noqa: BLE001 - what history lacks must not end all alerting
            self._say("history", f"changes wait ({type(error).__name__}: {first_line(error)})")
        else:
            self._say("history", "")

    def _begun(self) -> _State | None:
        """Lead, and load what is known; None while another one leads."""
        role = f"alerting of {self._lake}"
        opened = self._database.opened
        try:
            lead = leads.acquire(
                *(self._database, role, self._holder),
                now_us=self._now_us(),
                lasts_us=LEASE_US,
                watched=self._sight,
            )
        except LeadHeld as held:
            self._sight = held.sight
            self._say("lead", str(held))
            return None
        self._say("lead", "")
        held_there = steps.load(self._database, self._lake)
        at = held_there.cursor
        return _State(
            lead,
            known_of(held_there),
            {alert.fingerprint: alert for alert in held_there.alerts},
            None if at is None else (at.run, at.cycle),
            steps.judged_of(self._database, self._lake),
            opened,
        )

    def _step(self, state: _State) -> bool:
        now_us = self._now_us()
        decided, place = self._decided(state, now_us)
        if self._settings is not None:
            kept = people.silences_of(self._database, self._lake, ending_after_us=now_us)
            silences, faults = silences_of(kept)
            self._say("silences", "; ".join(faults))
            decided = notify(
                decided,
                self._rules.rules,
                self._settings.routing,
                silences=silences,
                now_us=now_us,
            )
        all_figures = now_us - state.figures_us >= FIGURES_EACH_US
        step = step_of(
            *(state.known, state.written, decided, place), all_figures=all_figures, now_us=now_us
        )
        step = self._with_judged(step, decided, state.judged, now_us)
        if self._database.opened != state.opened:
            raise LeadLost("the database is another one than it was: it is read anew")
        steps.take(self._database, self._lake, step, lead=state.lead, now_us=now_us)
        state.known = decided.known
        for gone in step.forgotten:
            state.written.pop(gone, None)
        state.written |= {alert.fingerprint: alert for alert in step.alerts}
        state.judged |= {one.rule: one for one in step.judged}
        for gone in step.rules_gone:
            state.judged.pop(gone)
        state.place = place or state.place
        if all_figures:
            state.figures_us = now_us
        if now_us - state.tidied_us >= TIDY_EACH_US:
            tidy(self._database, self._lake, now_us=now_us)
            state.tidied_us = now_us
        return bool(decided.notices)

    def _with_judged(
        self, step: Step, decided: Decided, before: Mapping[str, JudgedRule], now_us: int
    ) -> Step:
        """The step, with how the rules fared; those that are no longer in force are forgotten."""
        data_us = decided.known.clock.data_us
        judged = judged_rules(decided.outcomes, before, data_us=data_us, now_us=now_us)
        in_force = {rule.name for rule in self._rules.rules}
        gone = [name for name in before if name not in in_force]
        return replace(step, judged=judged, rules_gone=gone)

    def _decided(self, state: _State, now_us: int) -> tuple[Decided, tuple[str, int] | None]:
        """What follows from gold as it is now, and of which cycle; None: no cycle was read.

        While the lake cannot be read, the rules about the lake itself are judged by the cycle that
        was read last: the age of gold is known without it, and is what people must learn then.
        """
        rules: Sequence[Rule] = self._rules.rules
        place = None
        try:
            self._moment = self._gold.moment()
            if self._moment is not None:
                place = self._moment.run_id, self._moment.cycle
            self._say("gold", "")
        except LakeError as error:
            self._say("gold", str(error))
        unknown = frozenset(() if self._moment is None else self._moment.unknown)
        # Who falls silent while no cycle comes makes verdicts unknown all the same.
        moved = place != state.place or unknown != state.unknown
        is_new = place is not None and (moved or self._judges_anew)
        is_time = now_us - state.judged_us >= OF_LAKE_EACH_US or now_us < state.judged_us
        if not is_new and not is_time:
            return Decided(state.known), None
        state.judged_us = now_us
        state.unknown = unknown
        self._judges_anew = self._judges_anew and not is_new
        if not is_new:
            rules = [rule for rule in rules if rule.is_of_lake]
        looked = self._looked(rules, self._moment, now_us)
        decided = judge(
            *(state.known, self._rules.rules, looked),
            now_us=now_us,
            of_lake_alone=not is_new,
            owners=self._owners,
            answering=self._answering,
        )
        crowd = f"{OPEN_MAX:,} alerts are open: no more begin of {', '.join(decided.left_out)}"
        self._say("crowd", crowd if decided.left_out else "")
        return decided, place

    def _looked(self, rules: Sequence[Rule], moment: Moment | None, now_us: int) -> Looked:
        looked = self._gold.look(rules, moment, now_us=now_us)
        self._say("tables", "; ".join(f"{n}: {why}" for n, why in looked.unreadable.items()))
        return looked

    def _read_files(self) -> None:
        if self._rule_files.have_changed():
            self._rules = self._rules.reloaded(read_rules(self._rule_paths()))
            self._judges_anew = True
            faults = "; ".join(str(fault) for fault in self._rules.faults)
            self._say("rules", faults and f"the rules in force stay: {faults}")
        if self._place_files.have_changed():
            try:
                before, self._settings = self._owners, self._places.read()
                self._judges_anew = self._judges_anew or self._owners != before
                self._courier.now_has({} if self._settings is None else self._settings.channels)
                self._say("places", "")
            except ConfigError as error:
                self._say("places", f"receivers and routes stay as they were: {error}")

    @property
    def _owners(self) -> Sequence[Owned]:
        return () if self._settings is None else self._settings.owners

    def _give_back(self) -> None:
        if self._state is not None:
            with suppress(StoreUnavailable):
                leads.release(self._database, self._state.lead)

    def _say(self, about: str, words: str) -> None:
        """Once, until it is something else; empty words: it is well again."""
        before = self._said.get(about, "")
        if words == before:
            return
        self._said[about] = words
        if words:
            _log.warning("%s", words)
        else:
            _log.warning("well again: %s", before)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError:
        return -1, -1
    return stat.st_mtime_ns, stat.st_size
