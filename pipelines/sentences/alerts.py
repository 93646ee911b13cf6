"""Texts of alerts about queues, groups and members: templates that rules name.

The rules that are shipped name them, too.

Place in the walk: `texts = "LagGrows"` among the annotations of a rule takes summary, description
and first step from here; `pipelines/alerting/texts` fills them with the figures of an alert. A rule
about a stalled window says the headline of the window and nothing of its own, so its alert, the
pages and `tm` say one sentence. Pure data. Invariant: each text can be said with every figure known
and with every figure unknown that may be (`tests/sentences_of_alerts`). Absent on purpose:
conditions, which are the rule's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pipelines.sentences.alert_texts import Texts
from pipelines.sentences.alert_texts import texts as _texts
from pipelines.sentences.alerts_of_messages import OF_OFFSETS, OF_RETRIES
from pipelines.sentences.alerts_of_platform import OF_JOBS, OF_PLATFORM

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
        "{% if share_percent is not none %} {{ share_percent | count }} % of{% endif %} its work.",
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
