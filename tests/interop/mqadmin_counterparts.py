"""The `tidemark admin` counterpart of each compared sub-command of `mqadmin`.

A sub-command without a counterpart has the reason here.
"""

from __future__ import annotations

COUNTERPARTS: dict[str, str] = {
    "addWritePerm": "broker add-write",
    "allocateMQ": "topic allocate",
    "brokerConsumeStats": "broker progress",
    "brokerStatus": "broker status",
    "checkMsgSendRT": "message send --count --size",
    "cleanExpiredCQ": "broker clean",
    "cleanUnusedTopic": "broker clean",
    "cloneGroupOffset": "offset clone",
    "clusterList": "cluster list",
    "consumeMessage": "message by-offset --count",
    "consumerConnection": "group connections",
    "consumerProgress": "group progress",
    "consumerStatus": "group running",
    "deleteExpiredCommitLog": "broker clean",
    "deleteKvConfig": "namesrv delete",
    "deleteSubGroup": "group delete",
    "deleteTopic": "topic delete",
    "exportConfigs": "cluster export",
    "exportMetadata": "cluster export",
    "exportMetrics": "cluster export",
    "getBrokerConfig": "broker config",
    "getConsumerConfig": "group show",
    "getConsumerStatus": "group running",
    "getNamesrvConfig": "namesrv config",
    "haStatus": "broker ha",
    "printMsg": "message by-time",
    "printMsgByQueue": "message by-time --queue",
    "producer": "group producers",
    "producerConnection": "group producers",
    "queryCq": "topic units",
    "queryMsgById": "message by-id",
    "queryMsgByKey": "message by-key",
    "queryMsgByOffset": "message by-offset",
    "queryMsgByUniqueKey": "message by-key --unique",
    "queryMsgTraceById": "message trace",
    "resetOffsetByTime": "offset reset",
    "resetOffsetByTimeOld": "offset reset",
    "sendMessage": "message send",
    "sendMsgStatus": "message send --broker --count --size",
    "skipAccumulatedMessage": "offset reset",
    "statsAll": "topic stats",
    "topicClusterList": "topic route",
    "topicList": "topic list",
    "topicRoute": "topic route",
    "topicStatus": "topic status",
    "updateBrokerConfig": "broker set",
    "updateKvConfig": "namesrv put",
    "updateNamesrvConfig": "namesrv set",
    "updateOrderConf": "topic order --set --delete",
    "updateSubGroup": "group create",
    "updateSubGroupList": "group load",
    "updateTopic": "topic create --queues --attributes",
    "updateTopicList": "topic load",
    "updateTopicPerm": "topic perm",
    "wipeWritePerm": "broker wipe-write",
}
"""By sub-command: the command's words, then options that it needs for this."""

ARGUMENTS: dict[str, str] = {
    "queryMsgById -g -d": "message consume",
    "queryMsgByUniqueKey -g -d": "message consume",
    "resetOffsetByTime -q -o": "offset set",
    "topicList -c": "topic groups",
}
"""Sub-commands that do something else with these options."""

WITHOUT: dict[str, str] = {
    "setConsumeMode": "PULL is the only mode of this broker and the one every group has: with "
    "popping there will be something to choose",
}
"""Sub-commands that have no counterpart, and why."""
