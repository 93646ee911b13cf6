"""Texts of alerts about offsets, retries and dead letters: templates that rules name.

Place in the walk: beside those of `alerts`, whose module says how they are used. Pure data. Absent
on purpose: conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pipelines.sentences.alert_texts import Texts
from pipelines.sentences.alert_texts import texts as _texts

OF_OFFSETS: Final[Mapping[str, Texts]] = {
    "OffsetsRewound": _texts(
        "The offset of group {{ labels.group }} on queue {{ labels.queue_id }} of "
        "{{ labels.topic }} fell by {{ delta | count }}, {% if emitter | observed %}as after a "
        "reset: from outside the two look alike{% else %}and nobody reset it{% endif %}.",
        "{% if emitter | observed %}Ask who looks after the group whether it was reset, as by "
        "mqadmin resetOffsetByTime; if not, look at the log of the client that owns the queue."
        "{% else %}See what the client did then: a failed query of its offset lets it begin at the "
        "least one.{% endif %}",
        "It went from {{ previous_offset | default('an unknown offset') }} to {{ offset }}{% if "
        "not emitter | observed %}, "
        "reported by {{ client_id | client }}{% endif %}; what lies between is consumed again.",
    ),
    "TwoWriters": _texts(
        "Two clients of group {{ labels.group }} report offsets of queue {{ labels.queue_id }} of "
        "{{ labels.topic }}.",
        "Stop the one that does not own the queue: it is shown on the group's page.",
        "They are {{ client_id | client }} and {{ other_client_id | client }}; if the lower offset "
        "stays, the group consumes {{ delta | plural('message') }} again.",
    ),
    "OffsetBeyondEnd": _texts(
        "The offset of group {{ labels.group }} lies {{ delta | count }} beyond the end of queue "
        "{{ labels.queue_id }} of {{ labels.topic }}.",
        "See whether the broker restarted or changed its role; set the offset before clients fall "
        "to the least one.",
        "The offset is {{ offset }}, and the queue ends at "
        "{{ max_offset | default('an unknown offset') }}: its log was cut, or another "
        "one serves it.",
    ),
    "OffsetStoreLost": _texts(
        "Broker {{ labels.broker }} has lost the offsets of group {{ labels.group }}.",
        "Set the offsets anew from what was committed last, before everything is consumed again.",
        "{{ evidence }}",
    ),
    "BrokerRolledBack": _texts(
        "Broker {{ labels.broker }} came back with an old table of offsets: messages are "
        "consumed again by {{ groups | plural('group') }}.",
        "`tm.rollbacks()` names groups, queues and messages; consumers that are not idempotent "
        "need to know.",
        "{% if redelivered is none %}It may deliver up to {{ at_risk | plural('message') }} of "
        "{{ queues | plural('queue') }} again; how many it did is unknown, for it is observed from "
        "outside.{% else %}It delivered {% if unknown_reason %}at least {% endif %}"
        "{{ redelivered | plural('message') }} of {{ queues | plural('queue') }} again.{% endif %}",
    ),
    "LogCut": _texts(
        "The log of broker {{ labels.broker }} was cut, and group {{ labels.group }} was moved "
        "back.",
        "See which messages were replaced: they were acknowledged, and are lost.",
        "{{ evidence }}",
    ),
    "MessagesReplaced": _texts(
        "Group {{ labels.group }} read messages of {{ labels.topic }} that were acknowledged, and "
        "are lost.",
        "Have the producers send again what was sent before the crash.",
        "{{ evidence }}",
    ),
    "MessagesPassedOver": _texts(
        "Group {{ labels.group }} {% if messages is none %}may have passed over{% else %}has "
        "passed over{% endif %} messages of {{ labels.topic }}: the topic was made again.",
        "Set the group back to the beginning of the topic: its members went on where they were "
        "before it was deleted.",
        "{{ evidence }}",
    ),
    "TwoReaders": _texts(
        "Two members of group {{ labels.group }} read queue {{ labels.queue_id }} of "
        "{{ labels.topic }}.",
        "Look for two processes with one client id, or a member that missed a rebalance.",
        "They are {{ client_id | client }} and {{ next_client_id | client }}. {{ evidence }}",
    ),
    "DuplicatesThreaten": _texts(
        "Group {{ labels.group }} would be given {{ at_risk_messages | plural('message') }} of "
        "queue {{ labels.queue_id }} of {{ labels.topic }} twice after a crash.",
        "Do not restart its client before the head of the queue moves.",
        "{{ evidence }}",
    ),
    "MessageHandedOutTwice": _texts(
        "Group {{ labels.group }} has had a message of {{ labels.topic }} in its listener for too "
        "long: it was handed out once more.",
        "Lengthen the group's consume time-out, or make the listener quicker.",
        "{{ evidence }}",
    ),
    "MessageStoredTwice": _texts(
        "Topic {{ labels.topic }} stores messages twice: they were resent, or a transaction was "
        "answered twice.",
        "See whether the producer's time-out is shorter than the broker's answer takes.",
        "{{ evidence }}",
    ),
}
OF_RETRIES: Final[Mapping[str, Texts]] = {
    "DelayLevelKeepsMessages": _texts(
        "Broker {{ labels.broker }} keeps {{ overdue | plural('retried message') }} of group "
        "{{ labels.group }} whose delay of {{ delay_ms | duration }} is over.",
        "See whether the broker's delay service runs, and whether its offset lies beyond its "
        "queue.",
        "It keeps {{ waiting | plural('message') }} in all.",
    ),
    "DeadLetters": _texts(
        "Group {{ labels.group }} gave up {{ letters | plural('message') }} within 15 min.",
        "`tidemark admin dlq list {{ labels.group }}` says which, and why; `tidemark admin dlq "
        "redrive` sends them again when the cause is mended.",
        "They are of {{ topics | plural('topic') }}, the first at {{ since | utc }}; one reason "
        "is: "
        "{{ reason }}",
    ),
    "DeadLettersWait": _texts(
        "Dead letters of group {{ labels.group }} have waited for a decision for six hours.",
        "Send them again (`tidemark admin dlq redrive {{ labels.group }}`) or give them up "
        "(`tidemark admin dlq discard`), before retention removes them.",
        "It gave up {{ dead_lettered | plural('message') }}; sent again: {{ redriven | count }}, "
        "discarded: {{ discarded | count }}, expired: {{ expired | count }}.",
    ),
    "RetrySurge": _texts(
        "Group {{ labels.group }} failed {{ failed_5m | plural('message') }} within 5 min; "
        "usually it "
        "fails {{ usual_5m | plural('message') }}.",
        "See what its listener fails with: its own log, and `tm.dead_letters` once tries are used "
        "up; was it released lately?",
        "{{ evidence }} A failure is a message that a listener did not take.",
    ),
    "MessagesNotAcknowledged": _texts(
        "Group {{ labels.group }} takes messages and acknowledges none.",
        "See whether its consumers acknowledge what they have processed, and within the invisible "
        "time that they ask for.",
        "{{ evidence }} Each of them is handed out again when its invisible time is over.",
    ),
    "InvisibleTimesRunOut": _texts(
        "Group {{ labels.group }} did not acknowledge {{ came_back_5m | plural('message') }} "
        "in time within 5 min; usually it is {{ usual_came_back_5m | plural('message') }}.",
        "See whether its consumers acknowledge at all, and whether they take longer than the "
        "invisible time that they ask for.",
        "{{ evidence }} Each was handed out again: what was processed is processed twice.",
    ),
}
