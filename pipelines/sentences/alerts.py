"""Text templates for alerts, selected by the name given in the alert's rule.

Place in the walk: `texts = "LagGrows"` among the annotations of a rule takes summary, description
and first step from here; `pipelines/alerting/texts` fills them with the figures of an alert. A rule
about a stalled window says the headline of the window and nothing of its own, so its alert, the
pages and `tm` say one sentence. Pure data. Invariant: each text can be said with every figure known
and with every figure unknown that may be. Absent on purpose: conditions, which are the rule's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

Texts = Mapping[str, str]


def _texts(summary: str, first_step: str, description: str = "") -> Texts:
    """Templates, by the names under which a rule has them."""
    made = {"summary": summary, "first_step": first_step}
    return made | ({"description": description} if description else {})


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
        "outside.{% else %}It made {% if unknown_reason %}at least {% endif %}"
        "{{ redelivered | plural('repeated delivery') }} on {{ queues | plural('queue') }}."
        "{% endif %}",
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
        "They are of {{ topics | plural('topic') }}, the first at {{ since | utc }}; "
        "{% if reason is none %}no reason is known.{% else %}one reason is: {{ reason }}"
        "{% endif %}",
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
    "ReplicaBehind": _texts(
        "{% if replicas == 0 %}Master {{ labels.broker }} has no slave, and waits for one"
        "{% elif behind_ms is none %}Master {{ labels.broker }} does not know what its slaves have"
        "{% else %}Slave {{ slowest_replica }} of {{ labels.broker }} has been behind for "
        "{{ behind_ms | duration }}{% endif %}.",
        "See whether the slave runs, follows, and has room on its disk: `tidemark admin replica "
        "list`.",
        "{% if loss_bytes is none %}What the loss of the master would cost now is unknown."
        "{% else %}The loss of the master would cost {{ loss_messages | plural('message') }} now, "
        "{{ loss_bytes | plural('byte') }}.{% endif %}",
    ),
}


HEADLINE: Final = "{{ headline | default(evidence) }}"
"""What is wrong, by the stalled window itself; earlier versions wrote its evidence alone."""


ASK_WHY: Final = "Ask `tm.why`: the causes, as on the group's page, have their figures."
OF_STALLS: Final[Mapping[str, Texts]] = {
    "QueueFrozen": _texts(
        HEADLINE,
        "Look at the listener's stack on that client. A restart consumes everything behind the "
        "message again.",
        "{{ evidence }}",
    ),
    "QueueNotPulled": _texts(
        HEADLINE,
        "Restart the last reader, or add a member: a rebalance gives the queue to somebody.",
        "{{ evidence }}",
    ),
    "ConsumersGone": _texts(
        HEADLINE,
        "Start the group's consumers; see when, and how, the last one left.",
        "{{ evidence }}",
    ),
    "OrderlyQueueBlocked": _texts(
        HEADLINE,
        "See why the listener refuses the message: all behind it wait for it.",
        "{{ evidence }}",
    ),
    "QueueStalled": _texts(
        HEADLINE,
        "See on the group's page who holds the queue, and what its client does.",
        "{{ evidence }}",
    ),
    "GroupBeyondEnd": _texts(
        HEADLINE,
        "See whether the broker lost the end of its log, or the topic was made again: what is sent "
        "now would be passed over.",
        "{{ evidence }}",
    ),
    "RetryQueueNotRead": _texts(
        HEADLINE,
        "Compare the queues of the retry topic with those that its members read.",
        "{{ evidence }}",
    ),
}
OF_GROUPS: Final[Mapping[str, Texts]] = {
    "GroupStopped": _texts(
        "Group {{ labels.group }} has members and reports no offsets; its time lag is "
        "{{ time_lag_ms | duration }}.",
        "See on the group's page whether its members pull; look at their logs.",
        "{{ evidence }}",
    ),
    "LagGrows": _texts(
        "Group {{ labels.group }} falls further behind; its time lag is "
        "{{ time_lag_ms | duration }}.",
        ASK_WHY,
        "{{ evidence }} In all it is {{ lag_messages | plural('message') }} behind, and "
        "{{ lag_change_per_hour | plural('message') }} more each hour.",
    ),
    "LagBeyondObjective": _texts(
        "Group {{ labels.group }} has been more than 15 min behind for as long, and does not catch "
        "up.",
        ASK_WHY,
        "{{ evidence }} In all it is {{ lag_messages | plural('message') }} behind; its time lag "
        "is "
        "{{ time_lag_ms | duration }}.",
    ),
    "LagStays": _texts(
        "Group {{ labels.group }} stays behind, as it usually does; its time lag is "
        "{{ time_lag_ms | duration }}.",
        "Decide whether that is meant; give the group more members if it is not.",
        "{{ evidence }} In all it is {{ lag_messages | plural('message') }} behind.",
    ),
    "UnreadMessagesExpire": _texts(
        "Group {{ labels.group }} loses unread messages{% if retained_until is not none %} from "
        "{{ retained_until | utc }} on{% endif %}.",
        "Lengthen the retention of the broker, or make the group faster, before that moment.",
        "{{ evidence }} In all it is {{ lag_messages | plural('message') }} behind.",
    ),
    "UnreadMessagesLost": _texts(
        "Group {{ labels.group }} {% if error_messages < messages %}has lost{% else %}may have lost"
        "{% endif %} messages of {{ labels.topic }}: they were deleted before it read them.",
        "See which offsets are gone, and whether the producers can send them again.",
        "{{ evidence }}",
    ),
    "LagUnknown": _texts(
        "The lag of group {{ labels.group }} is known on {{ queues_known | count }} of its "
        "{{ queues | plural('queue') }}.",
        "See on the group's page which queues, and why: a sum that leaves some out is too small.",
        "{{ evidence }}",
    ),
    "FailuresCrowdOut": _texts(
        "Group {{ labels.group }} is behind because failing messages take"
        " {% if share_percent is none %}an unknown part{% else %}{{ share_percent | count }} %"
        "{% endif %} of its work.",
        "Ask `tm.dead_letters` which messages of the group fail, and why; its retry queues are on "
        "the group's page.",
        "{{ evidence }}",
    ),
    "MembersWithoutQueues": _texts(
        "Group {{ labels.group }} is behind, and has members that hold no queue of "
        "{{ labels.topic }}.",
        "Give the topic more queues, or stop the members that have none.",
        "{{ evidence }}",
    ),
    "ObjectiveBurnsFast": _texts(
        "Group {{ labels.group }} uses up its objective {{ burn_1h | plural('time') }} as fast as "
        "it may: it was behind for {{ behind_1h_ms | duration }} of the last hour.",
        ASK_WHY,
        "{{ evidence }}",
    ),
    "ObjectiveBurns": _texts(
        "Group {{ labels.group }} uses up its objective {{ burn_6h | plural('time') }} as fast as "
        "it may: it was behind for {{ behind_6h_ms | duration }} of the last six hours.",
        "See on the group's page when it is behind, and ask `tm.why` at such a moment.",
        "{{ evidence }}",
    ),
}
OF_MEMBERS: Final[Mapping[str, Texts]] = {
    "ClientIdShared": _texts(
        "Two processes of group {{ labels.group }} bear the client id "
        "{{ labels.client_id | client }}.",
        "Give each process an instance name of its own.",
        "{{ evidence }} Some queues have two readers, others none.",
    ),
    "SubscriptionsDiffer": _texts(
        "Members of group {{ labels.group }} subscribe differently: some messages are consumed by "
        "nobody.",
        "Make all members of the group subscribe alike, or give them two groups.",
        "{{ evidence }}",
    ),
    "RebalanceStorm": _texts(
        "Members of group {{ labels.group }} come and go: {{ changes | plural('change') }} within "
        "10 min.",
        "See which client goes, and why: crashes, long pauses, heartbeats that do not come "
        "through.",
        "Since {{ since | utc }} {{ clients | plural('client') }} came or went; the group has "
        "{{ members | plural('member') }}.",
    ),
    "MembersIdle": _texts(
        "Group {{ labels.group }} leaves {{ idle | count }} of {{ members | plural('member') }} "
        "without a queue; it is not behind.",
        "Stop the members that have none, or give the topic more queues: `tm.ownership` says who "
        "reads what.",
        "Its queues are read by {{ readers | plural('client') }}.",
    ),
}
TEXTS: Final[Mapping[str, Texts]] = {
    **OF_STALLS,
    **OF_GROUPS,
    **OF_MEMBERS,
    **OF_OFFSETS,
    **OF_RETRIES,
    **OF_JOBS,
    **OF_PLATFORM,
}
"""By the name of the rule that names them."""
