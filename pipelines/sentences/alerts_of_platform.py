"""Texts of alerts about jobs, brokers, gold and the pipeline: templates that rules name.

Place in the walk: beside those of `alerts`, whose module says how they are used. Pure data. Absent
on purpose: conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pipelines.sentences.alert_texts import Texts
from pipelines.sentences.alert_texts import texts as _texts

OF_JOBS: Final[Mapping[str, Texts]] = {
    "JobFailed": _texts(
        "Run {{ labels.run }} of job {{ labels.job }}, planned for {{ planned_at | utc }}, has "
        "failed.",
        "See the run's log at {{ executor | default('its executor') }}: `tidemark jobs history {{ "
        "job_id }}`.",
        "{{ evidence }}{% if last_lines %} Its last lines: {{ last_lines }}{% endif %}",
    ),
    "JobResultLost": _texts(
        "What became of run {{ labels.run }} of job {{ labels.job }}, planned for "
        "{{ planned_at | utc }}, is not known.",
        "See whether {{ executor | default('its executor') }} runs; find out what the run has "
        "done before it is run again.",
        "{{ evidence }}{% if last_lines %} Its last lines: {{ last_lines }}{% endif %}",
    ),
    "JobResultLate": _texts(
        "The result of run {{ labels.run }} of job {{ labels.job }} came after it had counted as "
        "lost.",
        "See whether the run was tried again meanwhile: then its work was done twice.",
        "{{ evidence }}{% if last_lines %} Its last lines: {{ last_lines }}{% endif %}",
    ),
    "JobLate": _texts(
        "Run {{ labels.run }} of job {{ labels.job }} should have begun at {{ planned_at | utc }}.",
        "See whether a centre runs, and whether executors of {{ labels.app }} are there.",
        "{{ evidence }}",
    ),
    "JobsNotPlanned": _texts(
        "Nobody plans jobs: {{ labels.job }} has been due since {{ planned_at | utc }}.",
        "See whether a centre runs (`tidemark scheduler run`), and what its log says.",
        "{{ evidence }}",
    ),
    "JobStopped": _texts(
        "Job {{ labels.job }} runs no more: the scheduler has stopped it.",
        "`tidemark jobs show {{ job_id }}` says why; mend that with `tidemark jobs edit`, then "
        "`tidemark jobs start {{ job_id }}`.",
        "{{ evidence }}",
    ),
    "JobMissed": _texts(
        "Job {{ labels.job }} was not planned in time, and runs of it are missing.",
        "See when centres ran; where the work is needed, have it run now: "
        "`tidemark jobs run {{ job_id }}`.",
        "{{ evidence }}",
    ),
}
OF_PLATFORM: Final[Mapping[str, Texts]] = {
    "Watchdog": _texts(
        "This alert always fires: whoever does not get it knows that alerting is broken.",
        "Nothing. Have somebody outside raise an alarm when this does not come.",
    ),
    "PipelineLate": _texts(
        "{% if age_ms is none %}No cycle of gold is complete yet: nothing is judged."
        "{% elif waits %}No emitter has reported anything for {{ age_ms | duration }}: nothing "
        "is known of now.{% else %}Gold is {{ age_ms | duration }} old: no other alert is to be "
        "believed, nor its absence.{% endif %}",
        "{% if waits %}See whether brokers and observers run, and their shippers; then their way "
        "to the lake.{% else %}See whether `tidemark pipeline run` runs, and what it says."
        "{% endif %}",
        "{% if cycle is not none %}The last complete cycle of run {{ run_id }} is {{ cycle }}."
        "{% if waits %} `tidemark pipeline run` lives, and nothing comes to it from "
        "{{ emitters | plural('emitter') }}.{% endif %}{% endif %}",
    ),
    "BrokerSilent": _texts(
        "Broker {{ labels.broker }} of {{ labels.cluster }} has reported nothing since "
        "{{ judged_to | utc }}.",
        "See whether the broker runs, and its shipper.",
        "{{ evidence }} All that rests on it is unknown.",
    ),
    "ClockAhead": _texts(
        "The clock of broker {{ labels.broker }} is ahead.",
        "Set the clock of its machine.",
        "{{ evidence }} Its times cannot be held against others.",
    ),
    "FactsMissing": _texts(
        "Facts of {{ labels.emitter }} are missing, or there twice.",
        "See what the shipper says of its last segments.",
        "It should have {{ rows_expected | plural('row') }} up to {{ seq_to }}; it has "
        "{{ rows_distinct | count }}, and {{ rows_found | count }} with copies.",
    ),
    "CheckFailed": _texts(
        "The check {{ labels.expectation }} of {{ labels.table }} fails: verdicts that rest on it "
        "are withheld.",
        "See the failing rows on the page of checks.",
        "{{ evidence }} It failed for {{ failed_rows | count }} of "
        "{{ checked_rows | plural('row') }}.",
    ),
    "FlushBehind": _texts(
        "Broker {{ labels.broker }} does not flush: a power cut would cost "
        "{{ power_cut_messages | plural('message') }} now.",
        "See whether its disk is full, slow or failing.",
        "It flushed {{ flushes | plural('time') }} in the last ten seconds, and has not flushed "
        "{{ power_cut_bytes | plural('byte') }}.",
    ),
}
