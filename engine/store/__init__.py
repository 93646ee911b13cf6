"""The message store: commit log, consume queues, index, and their upkeep, in RocketMQ's file
formats.
"""

from engine.store.config import FlushDiskType, StoreConfig
from engine.store.draft_record import BatchDraft, MessageDraft, PutResult
from engine.store.message_store import MessageStore
from engine.store.reading import GetResult, GetStatus
from engine.store.upkeep.group_commit import GroupCommit

__all__ = [
    "BatchDraft",
    "FlushDiskType",
    "GetResult",
    "GetStatus",
    "GroupCommit",
    "MessageDraft",
    "MessageStore",
    "PutResult",
    "StoreConfig",
]
