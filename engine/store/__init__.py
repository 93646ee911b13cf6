"""Message store in RocketMQ's file formats: commit log, consume queues, index and upkeep."""

from engine.store.commit_log import NO_END
from engine.store.config import FlushDiskType, StoreConfig
from engine.store.epochs import Epoch
from engine.store.message_store import MessageStore
from engine.store.reading import GetResult, GetStatus
from engine.store.record_writing import BatchDraft, MessageDraft, PutResult
from engine.store.upkeep.flush import GroupCommit

__all__ = [
    "NO_END",
    "BatchDraft",
    "Epoch",
    "FlushDiskType",
    "GetResult",
    "GetStatus",
    "GroupCommit",
    "MessageDraft",
    "MessageStore",
    "PutResult",
    "StoreConfig",
]
