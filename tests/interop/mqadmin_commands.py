"""The `mqadmin` sub-commands that run on both clusters, and how their outputs may differ.

Noise is what no two runs share: times, ids, addresses, rates. It is replaced in both outputs. A
difference is a thing that RocketMQ 5.5 has and this engine has not, or the reverse; each has its
reason here. The rest must be equal, line by line; lines of hash tables in any order.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

COMMANDS = (
    "clusterList",
    "clusterList -m",
    "topicList",
    "topicList -c",
    "topicClusterList -t AdmOrders",
    "topicRoute -t AdmOrders",
    "topicRoute -t AdmOrders -l",
    "topicStatus -t AdmOrders",
    "topicStatus -t AdmNone",
    "statsAll -t AdmOrders",
    "statsAll -a",
    "consumerProgress",
    "consumerProgress -g gid_adm",
    "consumerProgress -g gid_adm -t AdmOrders -s true",
    "consumerProgress -g gid_off -t AdmOrders",
    "consumerConnection -g gid_adm",
    "consumerConnection -g gid_none",
    "producerConnection -g pid_adm -t AdmOrders",
    "producerConnection -g pid_none -t AdmOrders",
    "producer -b {broker}",
    "consumerStatus -g gid_adm -i {consumer}",
    "consumerStatus -g gid_adm -i {consumer} -s",
    "getConsumerConfig -g gid_adm",
    "brokerStatus -b {broker}",
    "getBrokerConfig -b {broker}",
    "getNamesrvConfig",
    "brokerConsumeStats -b {broker}",
    "queryMsgById -t AdmOrders -i {stored-0}",
    "queryMsgById -t AdmOrders -i {stored-1} -g gid_adm -d {consumer}",
    "queryMsgByKey -t AdmOrders -k K3",
    "queryMsgByKey -t AdmOrders -k nokey",
    "queryMsgByUniqueKey -t AdmOrders -i {unique-1}",
    "queryMsgByUniqueKey -t AdmOrders -i {unique-2} -g gid_adm -d {consumer}",
    "queryMsgByOffset -t AdmOrders -b broker-a -i 1 -o 0",
    "queryMsgTraceById -i {unique-traced}",
    "printMsg -t AdmOrders -d true",
    "printMsgByQueue -t AdmOrders -a broker-a -i 0 -p true -d true -f true",
    "consumeMessage -t AdmOrders -b broker-a -i 2 -o 0 -c 2",
    "queryCq -t AdmOrders -q 1 -i 0 -c 3 -b {broker}",
    "queryCq -t AdmOrders -q 1 -i 3 -c 9 -b {broker} -g gid_adm",
    "queryCq -t AdmNone -q 1 -i 0 -c 3 -b {broker}",
    "allocateMQ -t AdmOrders -i 10.0.0.1,10.0.0.2,10.0.0.3",
    "haStatus -b {broker}",
    "getConsumerStatus -g gid_adm -t AdmOrders",
    "sendMessage -t AdmTraced -p sent -k KS -c TagS",
    "sendMessage -t AdmTraced -p sent -b broker-a -i 0",
    "checkMsgSendRT -t AdmTraced -a 2 -s 16",
    "sendMsgStatus -b broker-a -s 16 -c 2",
    "updateTopic -b {broker} -t AdmMade -r 3 -w 3",
    "updateTopic -c DefaultCluster -t AdmMade -r 4 -w 3 -a +message.type=NORMAL",
    "updateTopic -b {broker} -t Adm/Bad -r 3 -w 3",
    "updateTopic -b {broker} -t SCHEDULE_TOPIC_XXXX -r 3 -w 3",
    "updateTopicPerm -b {broker} -t AdmMade -p 4",
    "updateTopicPerm -b {broker} -t AdmMade -p 4",
    "topicRoute -t AdmMade",
    "updateOrderConf -t AdmMade -m put -v broker-a:3",
    "updateOrderConf -t AdmMade -m get",
    "topicRoute -t AdmMade",
    "updateNamesrvConfig -k orderMessageEnable -v true",
    "topicRoute -t AdmMade",
    "updateOrderConf -t AdmMade -m delete",
    "updateOrderConf -t AdmMade -m get",
    "updateKvConfig -s ADM_NS -k k -v v",
    "deleteKvConfig -s ADM_NS -k k",
    "updateSubGroup -b {broker} -g gid_made -r 2 -q 2",
    "getConsumerConfig -g gid_made",
    "deleteSubGroup -b {broker} -g gid_made -r true",
    "updateTopicList -b {broker} -f {folder}/topics.json",
    "updateSubGroupList -b {broker} -f {folder}/groups.json",
    "wipeWritePerm -b broker-a",
    "topicRoute -t AdmOrders",
    "addWritePerm -b broker-a",
    "topicRoute -t AdmOrders",
    "resetOffsetByTime -g gid_off -t AdmOrders -s 1",
    "consumerProgress -g gid_off -t AdmOrders",
    "resetOffsetByTime -g gid_off -t AdmOrders -s -1",
    "resetOffsetByTime -g gid_off -t AdmOrders -s 1 -b {broker} -q 2 -o 3",
    "resetOffsetByTimeOld -g gid_off -t AdmOrders -s 1 -f true",
    "skipAccumulatedMessage -g gid_off -t AdmOrders",
    "cloneGroupOffset -s gid_off -d gid_clone -t AdmOrders -o true",
    "consumerProgress -g gid_clone -t AdmOrders",
    "cleanExpiredCQ -b {broker}",
    "cleanUnusedTopic -b {broker}",
    "deleteExpiredCommitLog -b {broker}",
    "setConsumeMode -b {broker} -t AdmOrders -g gid_adm -m PULL -q 0",
    "updateBrokerConfig -b {broker} -k fileReservedTime -v 48",
    "exportMetadata -c DefaultCluster -f {folder}/metadata",
    "exportConfigs -c DefaultCluster -f {folder}/configs",
    "exportMetrics -c DefaultCluster -f {folder}/metrics",
    "deleteTopic -c DefaultCluster -t AdmMade",
    "topicRoute -t AdmMade",
    "queryMsgByKey -t AdmMade -k K1",
)

FILES = {
    "topics.json": [
        {"topicName": "AdmListA", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6},
        {"topicName": "AdmListB", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6},
    ],
    "groups.json": [{"groupName": "gid_listA", "retryMaxTimes": 3}, {"groupName": "gid_listB"}],
}
"""What updateTopicList and updateSubGroupList read."""

WRITTEN = ("metadata/metadata.json", "configs/configs.json", "metrics/metrics.json")
"""What the exports write; it is compared as the output of a command named by the file."""

SETTINGS = {"mappedFileSizeCommitLog": str(64 << 20), "enablePropertyFilter": "true"}
"""What the real broker of these tests is started with, besides names and addresses."""

NOISE = (
    (r"\tat .*|\t\.\.\. \d+ more", ""),
    (r"(See|For more information, please visit the url,) https://rocketmq\.apache\.org.*", ""),
    (r"127\.0\.0\.1:\d+", "<address>"),
    (r"\b[0-9A-F]{32}\b", "<id>"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d([,.:]\d{3})?", "<time>"),
    (r"\b1[789]\d{11}\b", "<time>"),
    (r"\b20\d{12}(\d{3})?\b", "<time>"),
    (r"@[0-9a-f]{5,8}\b", "@<hash>"),
    (r"Lambda(\$\d+)?/0x[0-9a-f]+", "Lambda"),  # Java 17, Java 21.
    (r"(?<![\d.])\d+\.\d+(?![\d.])( \d+\.\d+)*", "<rate>"),
    (r"\b\d+(?=ms\b)|(?<=spentTimeMills=)\d+|(?<=CLUSTERING )\s*\d+", "<n>"),
    (r"(?<= (true|TRUE)) +\d+$", " <n>"),
    (r"(?<=[ _])/\S+?(?=/(store|home|conf|metadata|configs|metrics)(/| |$))", "<folder>"),
    (r"\[ 0 days, 0 hours, \d+ minutes, \d+ seconds \]", "<time>"),
    (r"Total : .*", "<bytes>"),
    (r"(?<=MasterCommitLogMaxOffset\t)\d+", "<n>"),
    (r"\d+-\d+(?=\(\S+w,)", "<n>"),
    (r" +", " "),
    (r"\(\d+,<n>ms(\|\d+,<n>ms)?\)", "(<n>)"),
    (r"(?<=<rate>\)) \d+ (?=<rate>)", " <n> "),
)


@dataclass(frozen=True)
class Difference:
    """Lines that are dropped from both outputs of some commands, and why."""

    commands: str
    lines: str
    because: str


DIFFERENCES = (
    Difference(
        r"clusterList -m",
        r"^DefaultCluster",
        "RocketMQ counts messages without those of system topics, this broker with them",
    ),
    Difference(
        r"topicList",
        r"RMQ_SYS_ROCKSDB_|rmq_sys_(REVIVE_LOG|wheel_timer|SYNC_BROKER_MEMBER)",
        "topics of RocksDB, pop consumption, RocketMQ's own timer and acting masters",
    ),
    Difference(
        r"(wipe|add)WritePerm",
        r"write perm of broker",
        "it counts all topics, and RocketMQ's broker has five more of its own (see topicList)",
    ),
    Difference(
        r"brokerStatus",
        r"ThreadPoolQueueCapacity",
        "one event loop has one bound for all requests, not a queue for each kind",
    ),
    Difference(
        r"configs/configs\.json",
        r"traceOn|msgTraceTopicName|traceTopicEnable|slaveReadEnable|useTLS",
        "settings this broker does not have under these names",
    ),
    Difference(
        r"metrics/metrics\.json",
        r"cpuNum|messageAverageSize",
        "RocketMQ counts processors; its average counts system topics in another way",
    ),
    Difference(
        r"updateTopic .*Adm/Bad",
        r"illegal characters",
        "the same code and rule in other words",
    ),
    Difference(
        r"get(Broker|Namesrv)Config",
        r"^(listenPort|haListenPort|fastListenPort|namesrvAddr|storePath\w*|bindAddress|kvConfigPath|rocketmqHome)\b",
        "where each of the two runs",
    ),
    Difference(
        r"getBrokerConfig",
        r"^(diskMaxUsedSpaceRatio|transaction(CheckInterval|OpBatchInterval|TimeOut))\b",
        "the real one is started with other values, for the tests of transactions and full disks",
    ),
    Difference(
        r"getBrokerConfig",
        r"^metricsPromExporterHost\b",
        "without a host RocketMQ shows its figures to every network, this broker to its machine",
    ),
    Difference(
        r"getBrokerConfig",
        r"^flushDelayOffsetInterval\b",
        "one of RocketMQ that dies each 8 s delivers again what all its lives have delivered",
    ),
    Difference(
        r"getBrokerConfig",
        r"^flushCommitLogLeastPages\b",
        "RocketMQ leaves less than 4 pages to a power cut for ten seconds, this broker does not",
    ),
)

UNORDERED = (
    r"topicList|getBrokerConfig|getNamesrvConfig|consumerStatus|brokerStatus|\.json$|statsAll"
    r"|brokerConsumeStats|producer -b"
)
"""Commands whose lines come out of hash tables."""

STABLE_FIGURES = r"^(brokerActive|brokerVersion|brokerVersionDesc|runtime|bootTimestamp)\b"
KEYS_ONLY = r"brokerStatus"
"""Outputs of which most values are of the moment: names must be equal, and values if stable."""
KEYS_OF_BOTH = r"get(Broker|Namesrv)Config"
"""Outputs in which each party shows the settings it has; those that both have must be equal."""


def normalised(command: str, output: str) -> list[str]:
    """The output without noise."""
    if "-s" in command.split() and command.startswith("consumerStatus"):
        output = _with_stacks_counted(output)
    lines: list[str] = []
    for line in output.splitlines():
        text = line
        for pattern, replacement in NOISE:
            text = re.sub(pattern, replacement, text)
        if re.search(KEYS_ONLY, command) and not re.search(STABLE_FIGURES, text):
            text = re.sub(r" ?: .*|: .*", " : <value>", text)
        lines.append(text.strip(" ,\t") if command.endswith(".json") else text.rstrip(" ,"))
    lines = [line for line in lines if line]
    return sorted(lines) if re.search(UNORDERED, command) else lines


def comparable(command: str, ours: list[str], real: list[str]) -> tuple[list[str], list[str]]:
    """Both without the differences that have a reason."""
    dropped = [one.lines for one in DIFFERENCES if re.search(one.commands, command)]

    def kept(lines: list[str]) -> list[str]:
        return [line for line in lines if not any(re.search(one, line) for one in dropped)]

    ours, real = kept(ours), kept(real)
    if re.search(KEYS_OF_BOTH, command):
        both = {_key(line) for line in ours} & {_key(line) for line in real}
        ours = [line for line in ours if _key(line) in both]
        real = [line for line in real if _key(line) in both]
    return ours, real


def write_inputs(folder: Path) -> None:
    """The files that commands read."""
    for name, content in FILES.items():
        (folder / name).write_text(json.dumps(content))


def read_outputs(folder: Path) -> dict[str, str]:
    """The files that commands wrote."""
    return {name: (folder / name).read_text() for name in WRITTEN}


def _key(line: str) -> str:
    return line.partition("=")[0].strip()


def _with_stacks_counted(output: str) -> str:
    """Stacks differ in every run: that there are some of the consumer's threads counts."""
    head, _, stacks = output.partition("#Consumer jstack#")
    found = "ConsumeMessageThread" in stacks and "STATE: " in stacks
    return f"{head}#Consumer jstack#\n{'stacks of its threads' if found else 'no stacks'}"
