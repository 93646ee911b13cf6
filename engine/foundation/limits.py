"""Named constants for all of the engine's limits.

What happens at a limit is said beside it; tests hold the relations between them.
Figures that RocketMQ fixes are RocketMQ's; the others are ours.
Absent on purpose: settings. A limit guards the process, a setting suits a user.
"""

from typing import Final

from engine.foundation.units import GIB, HOUR_MS, KIB, MIB, MINUTE_MS, SECOND_MS

FRAME_BYTES_MAX: Final = 16 * MIB
"""A longer frame closes its connection (RocketMQ: 16 777 216)."""

BODY_BYTES_MAX: Final = 4 * MIB
"""Default and ceiling of `maxMessageSize`; `sending/drafts` refuses more with MESSAGE_ILLEGAL."""

PROPERTIES_BYTES_MAX: Final = 32_767
"""Longer properties are refused with MESSAGE_ILLEGAL: their length is a signed 16-bit number."""

COPY_ROOM_BYTES: Final = 4 * KIB
"""What further copies of a message (retries, dead letter, delayed delivery, questions about its
transaction) say more than the first; only what leaves that room in a commit-log file is accepted.
"""

COPY_PROPERTIES_BYTES: Final = 2944
"""What all further copies of a message add to its properties at most (`protocol/copy_room`);
they have to leave that much room.
"""

DECISION_WHO_BYTES_MAX: Final = 128
DECISION_WHY_BYTES_MAX: Final = 512
"""Of the person who decides about a dead letter, and of the reason; longer ones are refused."""

MESSAGE_ID_CHARS_MAX: Final = 255
"""Of an id that a further copy of a message repeats; a longer one, which only a strange client
makes, is replaced by the broker's own.
"""

TOPIC_CHARS_MAX: Final = 127
GROUP_CHARS_MAX: Final = 120
RETRY_TOPIC_CHARS_MAX: Final = 255
"""Topics named %RETRY%group and %DLQ%group may be longer than ordinary ones."""

HEADER_BYTES_MAX: Final = 256 * KIB
"""A request's longer header closes its connection; properties fit in however JSON escapes them."""

STRANGER_HEADER_BYTES_MAX: Final = 4 * KIB
"""Where requests are signed, this is the limit until a connection's first one was found genuine."""

HEADER_FIELDS_MAX: Final = 1024
"""More extFields than this in one header is hostile; the connection is closed."""

BODY_UNREAD_BYTES_MAX: Final = 64 * KIB
"""A request's longer body is refused, where its code has no limit of its own below."""

BODY_SETTINGS_BYTES_MAX: Final = 32 * KIB
"""Settings to change, in one request; longer text is refused."""

BODY_ADMIN_BYTES_MAX: Final = 512 * KIB
"""Lists of topics or groups to make, in one request; a longer one is refused."""

BODY_ADMIN_ENTRIES_MAX: Final = 1000
"""Topics or groups of such a list; more are refused (some 40 us each)."""

BODY_REGISTRATION_BYTES_MAX: Final = 8 * MIB
"""A broker's registration, and what a compressed one inflates to; a longer one is refused."""

REGISTRATION_TOPICS_MAX: Final = 10_000
"""Topics of one registration; a broker with more sends several (some 0.2 KiB each)."""

REGISTERED_AT_ONCE: Final = 2000
"""Topics of a registration that are taken over in one go; then others have their turn."""

HEARTBEAT_BYTES_MAX: Final = 512 * KIB
"""A longer heartbeat is refused; one of 100 groups with 10 topics each has half of it."""

CLIENT_GROUPS_MAX: Final = 512
"""Groups that one connection may be a member of; the heartbeat that adds one more is refused."""

CLIENT_SUBSCRIPTIONS_MAX: Final = 2048
"""Topics that the groups of one heartbeat subscribe to, together; more are refused."""

CLIENT_ID_CHARS_MAX: Final = 512
"""A longer client id is refused."""

SUBSCRIPTION_CHARS_MAX: Final = 16 * KIB
"""A longer expression of tags is refused with SUBSCRIPTION_PARSE_FAILED."""

SUBSCRIPTION_TAGS_MAX: Final = 1024
"""Tags of one subscription, and their hashes; more are refused likewise."""

CLIENT_SUBSCRIPTION_BYTES_MAX: Final = 2 * MIB
SUBSCRIPTION_BYTES_MAX: Final = 128 * MIB
"""Memory for what one connection subscribes to, and for what all groups of a broker do; the
heartbeat that would need more is refused.
"""

ACCOUNT_SUBSCRIPTION_BYTES_MAX: Final = 64 * MIB
"""As above, for what the clients of one account reported: nobody takes what others need."""

MEMBERS_MAX: Final = 200_000
"""Memberships of clients in groups, of producers as of consumers (some 0.4 KiB each); the heartbeat
that adds one more is refused.
"""

ACCOUNT_MEMBERS_MAX: Final = 80_000
"""As above, for the clients of one account."""

LOCK_BATCH_BYTES_MAX: Final = 512 * KIB
LOCK_BATCH_QUEUES_MAX: Final = 4096
"""Order locks asked for or given back at once; a longer request is refused."""

MEMBER_ANSWER_BYTES_MAX: Final = 1 * MIB
MEMBER_ANSWER_QUEUES_MAX: Final = 2048
"""What a member answers when it is asked for its queues; a longer answer counts as none."""

KEY_VALUE_NAME_CHARS_MAX: Final = 255
KEY_VALUE_CHARS_MAX: Final = 32 * KIB
KEY_VALUES_BYTES_MAX: Final = 4 * MIB
"""Names and values of a name server's key-value settings, and all of them together; what is longer
or more is refused.
"""

LOOSE_BODY_BYTES_MAX: Final = 128 * KIB
LOOSE_BODY_KEYS_MAX: Final = 4096
"""A request's body that is not strict JSON may be so long, and have so many keys without quotes."""

LOOSE_KEYS_MAX: Final = 131_072
"""Keys of one JSON document that are integers without quotes, or objects (RocketMQ's writer):
more than any table of queues that fits in a frame has. A document with more is refused.
"""

CONNECTIONS_MAX: Final = 16_384
"""A connection beyond this is closed at once, with one log line."""

CONNECTIONS_PER_ADDRESS_MAX: Final = 12_288
"""As above, for the connections from one IP address: nobody takes them all."""

DESCRIPTORS_RESERVED: Final = 1024
"""Descriptors of a process that no connection may take: files of the store, spool, listening ports.
Where the system allows less than both, fewer connections are served.
"""

HANDSHAKES_MAX: Final = 1024
"""Connections whose TLS handshake is under way; one beyond it is closed at once."""

CONNECTION_REQUEST_BYTES_MAX: Final = 32 * MIB
"""Bytes of one connection's requests whose handlers still wait for something; above it nothing
more is read from that connection until they have ended.
"""

REQUEST_BYTES_MAX: Final = 256 * MIB
"""As above, for all connections of a party together: whoever sends more waits."""

UNFINISHED_FRAME_BYTES_MAX: Final = 512 * MIB
"""Bytes of frames that have begun to arrive, in all; above it the connection is closed whose frame
began first.
"""

CONNECTION_OUTPUT_PAUSE_BYTES: Final = 8 * MIB
"""While more answers than this wait for a slow reader, its requests are not read."""

TURN_OUTPUT_BYTES_MAX: Final = 4 * MIB
"""Answers that one pass of the event loop collects; above it they leave before the next request is
looked at, so that a single read of many small requests cannot pile up what nobody takes.
"""

TURN_WRITES_MAX: Final = 250
"""Connections that one step of the event loop writes answers to (20 to 80 us each); the others get
theirs in the next steps.
"""

CONNECTION_OUTPUT_BYTES_MAX: Final = 64 * MIB
"""A reader that lets more answers than this pile up is closed."""

OUTPUT_BYTES_MAX: Final = 512 * MIB
"""As above, for all connections of a party together: the reader that is to get more is closed."""

PENDING_REQUESTS_MAX: Final = 65_536
"""Requests one client connection may have under way."""

HANDLER_TASKS_MAX: Final = 10_000
"""Requests of one party whose handlers still wait for something; more get SYSTEM_BUSY at once
(RocketMQ: sendThreadPoolQueueCapacity).
"""

LOOP_STEP_ENTRIES_MAX: Final = 250
"""Entries of a table that one step of the event loop looks at, when it goes through a table that
may be long (1 to 50 us each, so 12 ms at most); the rest follows after the loop's other work.
"""

DELETIONS_MAX: Final = 4096
"""Deletions of topics, and of groups with their offsets, that wait for their turn (4 KiB each):
they go on when those who asked are gone; another is refused with SYSTEM_BUSY.
"""

DELETED_GROUPS_NOTED_MAX: Final = 1_000
"""Groups that were deleted with offsets since the file of offsets was written (0.1 KiB each), noted
in the file of groups: the deletion of another waits until the file of offsets is written.
"""

LOOP_STEP_ANSWERS_MAX: Final = 100
"""Requests that one step of the event loop answers when many wait for the same thing (50 to 200 us
each); the others follow in the next steps.
"""

HELD_PULLS_MAX: Final = 100_000
"""Long polls parked in the broker; a pull beyond this is answered at once with PULL_NOT_FOUND."""

HELD_FILTER_BYTES_MAX: Final = 64 * MIB
"""Memory for the filters of their own that parked polls bring along; one beyond it is answered at
once likewise.
"""

FILTER_COST_MAX: Final = 50_000
"""What the filters of pulls may cost in one step of the event loop, as a multiple of one tag's test
(some 0.2 us, so 10 ms): a pull looks through fewer messages the longer its filter is, and asks on;
of parked ones those beyond it are woken untested.
"""

UNKNOWN_SENDS_MAX: Final = 10_000
"""Messages of one producer whose outcome is unknown and whose broker it remembers for a resend;
beyond it the oldest is forgotten (and may then be stored twice).
"""

CLOCK_STEPS_KEPT_MAX: Final = 64
"""Steps of the machine's clock that delayed messages may have waited over; of more the oldest two
count as one, by which what waited before them is late rather than early.
"""

STORE_TIME_MARKS_MAX: Final = 4096
"""Places in the log of which a broker remembers when it was there, one a second while messages
arrive; of more every second one is forgotten.
"""

DEDUPLICATED_SENDS_MAX: Final = 131_072
DEDUPLICATED_BATCH_MAX: Final = 1024
"""Newest messages of topics with deduplication that a broker remembers (about 70 MB); the resend
of an older one is stored again. A longer batch (some 20 us a message) to such a topic is refused.
"""

TOMBSTONES_MAX: Final = 65_536
TOMBSTONE_READERS_MAX: Final = 10_000
TOMBSTONES_READERS_MAX: Final = 200_000
"""Deleted topics of which the log still holds messages (about 10 MB), groups that one tombstone
names as readers, and that all of them name (about 13 MB). One topic more is not deleted; groups
beyond begin a topic made again when they come.
"""

LIFE_WITNESSES_MAX: Final = 100_000
LIFE_ANSWERS_MAX: Final = 100_000
"""Members that read a topic when it was deleted, and offsets that clients asked for in topics with
an earlier life; the oldest are forgotten, and begin anew.
"""

QUEUE_KNOWERS_MAX: Final = 8
LIFE_LISTENERS_MAX: Final = 200_000
REFUSED_REPORTS_MAX: Final = 100_000
"""Clients known to read a queue in its present life (who read longest ago is forgotten), those with
offsets of their own in all queues (where there are more, all are believed), and refused reports of
offsets with few rows each (some of those beyond have none for a while).
"""

DEDUPLICATION_WINDOW_MS: Final = 10 * MINUTE_MS
"""A resend is recognised for this long after its first copy was stored."""

SENDS_REMEMBERED_MAX: Final = 65_536
SECOND_COPIES_MAX: Final = 4096
SENDS_READ_BACK_MAX: Final = 8192
"""Newest messages of which a broker remembers enough to notice that one was stored twice (twice as
many at most, about 9 MB), and the second copies it then knows of; older ones are not reported. Of
the former, so many are read back from the log when a broker starts (about 0.1 s).
"""

SECOND_COPIES_LOOKED_UP_MAX: Final = 150
SECOND_COPIES_LOOKED_UP_A_SECOND: Final = 100
"""Messages that may be second copies and are compared with the first: so many at once, and so many
in a second for ever; those beyond it are reported as a number.
"""

SEND_RETRY_SPAN_MS: Final = 10 * MINUTE_MS
"""A message stored again later than this is not reported as its producer's retry."""

GUARD_KEYS_KEPT_MS: Final = 7 * 24 * HOUR_MS
"""Business keys a consumer's guard remembers; a message that arrives again later is consumed
again. Longer than messages are kept (72 h) and all their retries together.
"""

GUARD_KEYS_PER_CLEANING: Final = 10_000
"""Keys noted between two deletions of those that are too old."""

OUTBOX_ROWS_PER_RUN: Final = 10_000
"""Rows of an outbox that one run sends; the next run goes on."""

OUTBOX_ROWS_AT_ONCE: Final = 64
"""Rows under way together, each of another business key."""

OUTBOX_SEND_WITHIN_MS: Final = 10 * SECOND_MS
"""How long sending one row may take; after that its fate is unknown, and it is sent again."""

OUTBOX_LEASE_MS: Final = 30 * SECOND_MS
"""A row that a sender took is nobody else's for so long; then that sender is taken for dead."""

OUTBOX_RETRY_MS_MIN: Final = 1 * SECOND_MS
OUTBOX_RETRY_MS_MAX: Final = 1 * MINUTE_MS
"""A row that was not sent waits, twice as long each time, from the one to the other."""

OUTBOX_REFUSALS_MAX: Final = 3
"""Refusals that speak of the message itself, after which its row is poison."""

OUTBOX_SENT_KEPT_MS: Final = 7 * 24 * HOUR_MS
"""Rows that were sent are kept so long, to be looked at."""

DEAD_LETTERS_READ_MAX: Final = 10_000
"""Dead letters one listing, re-drive or discard looks at; narrow the filters for more."""

TIMERS_READ_MAX: Final = 1_000_000
TIMERS_LISTED_MAX: Final = 1_000
"""Records of timers one listing or export reads of a broker; timers one listing shows by itself."""

TRACES_WAITING_MAX: Final = 2048
"""Message traces one client keeps until they are written; more are dropped (RocketMQ's queue)."""

TRACE_BATCH_MAX: Final = 20
TRACE_RECORD_BYTES_MAX: Final = 128_000
"""Traces of one record, by number and by bytes (RocketMQ); what is more goes into the next one."""

TRACE_KEYS_BYTES_MAX: Final = 28 * KIB
"""Of the ids and keys by which a record of traces is found: they are one of its properties. A trace
whose keys are too many for a record goes into the next one; of those of a single trace, what does
not fit is left out.
"""

DISAGREEING_MEMBERS_TOLD_MAX: Final = 32
"""Members of a group that subscribe differently, named one by one when it is reported, and topics
they disagree about.
"""

MEMBERS_LISTED_MAX: Final = 512
"""Members named in the fact that one came or went; of a larger group the fact names nobody else,
because ten thousand that leave at once would make fifty million notices.
"""

OWNED_QUEUES_TOLD_MAX: Final = 4096
"""Queues named, with their offsets, in the fact that a member went; all of them are given up."""

MEMBER_NOTICES_AT_ONCE: Final = 64
"""A group of so many members is notified of each change when it happens (RocketMQ)."""

MEMBER_NOTICES_PER_SECOND: Final = 1000
MEMBER_NOTICES_EACH_MS: Final = 1 * SECOND_MS
"""A larger one is notified so often that its members get so many notices a second together, but
each such while at least; changes meanwhile are reported as one.
"""

EXPIRED_DEAD_LETTERS_MAX: Final = 10_000
"""Expired dead letters reported one by one in a round of retention, and as many retries; of more
only that they were more.
"""

GROUPS_MAX: Final = 100_000
TOPICS_MAX: Final = 100_000
"""Auto-created topics and groups stop here with SYSTEM_ERROR; explicit creation says the same."""

ACCOUNT_GROUPS_MAX: Final = 50_000
"""Groups whose first member is a client of one account; the heartbeat that adds one is refused."""

GROUP_ATTRIBUTES_CHARS_MAX: Final = 1 * KIB
"""Names and values of one group's attributes together; more are refused."""

ACCOUNTS_BYTES_MAX: Final = 1 * MIB
"""Accounts of a Raft group together, as one record of its log; a change beyond it is refused."""

BROKERS_MAX: Final = 4096
"""Addresses of brokers that a name server keeps; the registration of one more is refused."""

BROKER_ADDRESS_CHARS_MAX: Final = 255
"""A broker's longer address is refused."""

GROUP_QUEUES_MAX: Final = 2_000_000
"""Pairs of a group and a queue with an offset, and as many that are read; one more is refused."""

QUEUES_PER_TOPIC_MAX: Final = 4096
BATCH_MESSAGES_MAX: Final = 16_384
QUEUE_UNITS_TOLD_MAX: Final = 4096
"""Entries of a consume queue that one question of a tool is answered with; the tool asks on."""

PULL_MESSAGES_MAX: Final = 1024

COMMIT_LOG_FILE_BYTES_DEFAULT: Final = 1 * GIB
STORE_FILE_BYTES_MAX: Final = 2 * GIB - 1
"""Positions inside a file are signed 32-bit numbers in RocketMQ's formats."""

STORE_OPEN_FILES_MAX: Final = 256
"""Files one store holds open; beyond it the longest unused is closed, and reopened when needed."""

LOG_HOLES_KEPT_MAX: Final = 10_000
"""Damaged ranges of a commit log that are remembered (some 200 bytes each); of more the number."""

LOG_HOLES_TOLD_MAX: Final = 100
"""Of these, reported one by one at a start, the largest; the others together. As many of those that
readers come upon before the next start.
"""

CUT_BYTES_KEPT_MAX: Final = 64 * MIB
"""Bytes cut off the end of a commit log that are put aside in the folder `cut`; beyond it the
oldest go, and of one longer tail its beginning is kept.
"""

QUEUE_UNITS_WAITING_MAX: Final = 64
"""Entries of one consume queue that wait in memory to be written together."""

UNCONSUMED_REPORTS_MAX: Final = 100
"""Events about one round of deletions; the losses beyond it are reported as a number."""

TRANSIENT_POOL_BYTES_MAX: Final = 64 * MIB
"""Bytes of messages that wait in memory for the next commit; the put that exceeds it commits."""

DISPATCH_BATCH_MAX: Final = 1024
"""Records dispatched in one go (some 7 us each), one with many KEYS counting as so many; the event
loop gets its turn, then the rest follows.
"""

INDEX_FILL_RECORDS: Final = 256
INDEX_FILL_BYTES: Final = 4 * MIB
"""Records, one with many KEYS counting as so many, and bytes of the log, whose keys one step puts
again into a damaged index.
"""

QUEUE_SCRUB_BYTES: Final = 1 * MIB
QUEUE_SCRUB_STEP_US: Final = 3_000
QUEUE_SCRUB_SHARE: Final = 0.05
"""A step of holding consume queues against the log: bytes of the log and time of the loop at most;
and the share of the loop's time that all steps take.
"""

QUEUE_SCRUB_FILES_TOLD: Final = 64
"""Files of consume queues that were mended and are not reported yet; others are reported as a
number.
"""

DISPATCH_TOLD_MAX: Final = BATCH_MESSAGES_MAX
"""Records whose put announced them to dispatch; those beyond are read from the log again."""

WATERMARKS_PER_SAMPLE_MAX: Final = 2000
"""Queues whose marks one sample reads, and queues of groups: some 20 ms of the loop for each, and
as many rows a second as the pipeline takes in; of more, those read longest ago come first."""

OFFSET_ANSWERS_TOLD_A_SECOND: Final = 2000
"""Answers where a group goes on that are rows; of more in a second the others are answered and not
reported: a group of a thousand queues that rebalances asks so often, and no client needs to."""

WINDOWS_TOLD_MAX: Final = 200_000
"""Windows of clients remembered as reported last (0.4 KiB each); others are reported with each
answer.
"""

CLIENT_CLOCKS_MAX: Final = 100_000
"""Clients of one emitter whose clocks are compared with its own (0.2 KiB each); the moments that
others name are taken as they are.
"""

DOUBTFUL_READERS_MAX: Final = 100_000
"""Queues that a client may read beside their reader, until it is asked; beyond it time shows."""

GONE_TOPICS_MAX: Final = 10_000
"""Topics of an observed broker known to be gone; of more the one gone longest ago comes as new."""

FIRST_MESSAGES_MAX: Final = 100_000
"""Queues of an observed broker whose first message's store time is remembered; of more the one
asked longest ago is judged by its last message.
"""

LEFT_TOPICS_MAX: Final = 100_000
"""Topics of groups of one broker that no member names; further ones count as read."""

BROADCASTING_GROUPS_MAX: Final = 100_000
"""Groups known to broadcast, also when their members have left; of more that is forgotten then."""

SILENT_KINDS_MAX: Final = 10_000
"""Groups and kinds of clients that were reported to say nothing of what they hold; of more the one
reported longest ago is reported again sooner."""

STACK_TOLD_BYTES_MAX: Final = 16 * KIB
"""Of the stacks of one client's listeners, as a row reports them; the rest is cut off."""

STACK_QUESTIONS_AT_ONCE: Final = 8
"""Clients that are asked for their stacks at the same time; the others have their turn when they
are asked next what they hold."""

STORE_MEMO_ENTRIES_MAX: Final = 8192
"""Tags and beginnings of keys remembered in decoded form; more are decoded again each time."""

NAMES_REMEMBERED_MAX: Final = 65_536
"""Topics, and hosts that send, remembered in encoded form: more than a broker of 10,000 topics has,
because one that comes around just after it was forgotten costs more than no memory at all."""

FILTER_EXPRESSION_CHARS_MAX: Final = 8 * KIB
"""A longer SQL92 selector is refused with SUBSCRIPTION_PARSE_FAILED."""

FILTER_DEPTH_MAX: Final = 64
"""Levels a selector may nest; a deeper one is refused likewise."""

FILTER_MEMO_ENTRIES_MAX: Final = 64
"""Selectors of pulls kept compiled (some 0.1 KiB a character); more are compiled again when they
are asked for.
"""

CONSUMER_FILTERS_MAX: Final = 10_000
"""Selectors of groups the broker keeps; a group's beyond it is not registered (its pulls get
FILTER_DATA_NOT_EXIST).
"""

CONSUMER_FILTER_CHARS_MAX: Final = 1 * MIB
"""Characters of all of them together, of which each takes some 0.1 KiB compiled; what would be more
is not registered likewise.
"""

CLIENT_EXPIRY_MS: Final = 120 * SECOND_MS
"""A client without a heartbeat for this long is removed from its groups."""

BROKER_EXPIRY_MS: Final = 120 * SECOND_MS
"""A broker without a registration for this long is removed from the routes (unless it names its
own time).
"""

CLIENT_HEARTBEAT_MS: Final = 30 * SECOND_MS
BROKER_REGISTER_MS: Final = 30 * SECOND_MS
MEMBER_ANSWER_MS: Final = 5 * SECOND_MS
"""How long a member has to report its offsets when a tool asks for them (RocketMQ)."""

QUEUE_LOCKS_MAX: Final = 500_000
"""Order locks of groups on queues; a queue beyond it is not granted until others are given back."""

FORMER_HOLDERS_MAX: Final = 50_000
"""Clients remembered that held an order lock and do not now: a late report takes no offset back."""

QUEUE_LOCK_LEASE_MS: Final = 60 * SECOND_MS
CLIENT_LOCK_EXPIRY_MS: Final = 30 * SECOND_MS
PULL_SUSPEND_MS_MAX: Final = 5 * MINUTE_MS

TRAFFIC_KEYS_MAX: Final = 100_000
"""Topics, or pairs of group and topic, whose traffic is counted one by one; what is beyond is
counted together.
"""

LOG_LINES_PER_SECOND_MAX: Final = 20
"""Lines of one kind that are logged in one second; those beyond it are counted in the next line."""

LOG_KINDS_MAX: Final = 1024
"""Kinds of lines counted apart; of more the oldest begins anew."""

METRICS_CONNECTIONS_MAX: Final = 16
"""Scrapes answered at once; one more is answered 503, and beyond four times as many cut off."""

CLIENT_FIGURES_MAX: Final = 100_000
"""Topics of members of groups whose consume speed, as the members report it, a broker keeps (some
0.6 KiB each); those of a member that would be more are counted and not reported.
"""

COLD_READERS_MAX: Final = 10_000
"""Pairs of a group and a topic whose reads from far behind the end of the log are summed up for ten
seconds (some 0.3 KiB each); the reads of further ones are not reported.
"""

METRIC_SERIES_MAX: Final = 20_000
"""Series of one metric family in one answer to a scrape; those left out are counted."""

SPOOL_SEGMENT_BYTES: Final = 8 * MIB
"""A spool segment is closed at this size; the shipper drops it when every row of it is in Delta."""

SPOOL_BYTES_MAX: Final = 8 * GIB
"""When the shipper is away for so long that the spool holds more, telemetry stops, loudly;
messages go on.
"""

SPOOL_FRAME_ROWS_MAX: Final = 1024
"""A turn with more rows than this is written as several frames; a buffer that reaches it is
written at once (some 20 ms).
"""

SHIP_ROWS_MAX: Final = 50_000
"""Rows that the shipper carries in one run (some 1 KiB each while they are Arrow tables): a longer
run would not fit the memory of a small machine with comfort.
"""

SPOOL_ROWS_KEPT_MAX: Final = 64
"""Rows about the broker itself that wait for room on a full disk; those beyond it are lost and
counted, as all others are.
"""

SPOOL_FRAME_BYTES_MAX: Final = 128 * MIB
"""A longer frame is not written (its rows are counted as lost) and not read."""

TRANSACTIONS_HELD_MAX: Final = 262_144
"""Half messages between the oldest unsettled one and the newest; one beyond it is refused with
SYSTEM_BUSY until older ones are ended or asked for.
"""

TRANSACTIONS_RENEWED_HELD: Final = TRANSACTIONS_HELD_MAX // 4
"""With so many half messages held, at least half of them settled, those whose producers asked for
time are put again at the tail. Each copy frees a place or more, so they cost the log at most one
copy for each half message that came, however long they wait.
"""

REPLIES_WAITING_BYTES_MAX: Final = 64 * MIB
ACCOUNT_REPLIES_WAITING_BYTES_MAX: Final = 16 * MIB
"""Replies that askers have not taken yet, of all and of one account (of one connection, without
accounts): askers have 10 s, and may be slow on purpose. One more is refused with SYSTEM_BUSY.
"""

REPLY_WAITING_BYTES: Final = 8 * KIB
"""What a waiting reply counts beside its body and properties."""

QUESTIONS_PER_ACCOUNT_MAX: Final = 10_000
"""Questions of request and reply that a broker with accounts remembers of each; a reply to an older
one is refused.
"""

CLIENT_CHECKS_MAX: Final = 2000
"""Questions for transactions' states one producer works on; further ones are dropped with a log
line, and the broker asks again (RocketMQ: checkRequestHoldMax)."""

HANDED_TAILS_MAX: Final = 512
HANDED_TAILS_A_SAMPLE_MAX: Final = 32
"""Queues of which the spool carries the newest message pulled before it was synced; those noted
least recently are forgotten. So many are noted in a sample, 13 µs each."""

PULLED_MARKS_MAX: Final = 65_536
"""Pulled marks the spool carries over a reboot, and as many reported offsets; those that moved
least recently are forgotten, a 64th of them at once."""

LIFE_ENTRIES_PER_TURN: Final = 4096
"""Of these, so many are encoded in one turn of the event loop when a segment is full (1 to 5 ms);
the next segment begins when all are.
"""

RAFT_LETTERS_WAITING_MAX: Final = 200
"""Letters to a node of a group that wait for a connection; the oldest are lost."""

REPLICAS_MAX: Final = 16
"""Slaves of one master at the same time; one more is refused."""

HA_PIECE_BYTES_MAX: Final = 16 * MIB
"""A longer piece from a master ends the connection with it."""

HA_TURN_BYTES: Final = 4 * MIB
"""Sent to one slave in a step of the loop, and waiting for it to read; the rest follows."""
