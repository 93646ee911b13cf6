"""Producers and consumers for Tidemark and Apache RocketMQ clusters."""

from engine.client.config import (
    ClientConfig,
    ConsumerConfig,
    LitePullConfig,
    MessageModel,
    ProducerConfig,
)
from engine.client.consuming.listeners import (
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    ConsumeOrderlyStatus,
)
from engine.client.consuming.lite_pull import LitePullConsumer
from engine.client.consuming.message_selector import MessageSelector
from engine.client.consuming.pull_consumer import PullConsumer
from engine.client.consuming.push_consumer import PushConsumer
from engine.client.consuming.start_offset import ConsumeFromWhere
from engine.client.producer import Producer
from engine.client.retry_queue import RetryQueue
from engine.client.sending.send_result import SendResult, SendStatus
from engine.client.transaction_producer import (
    TransactionEnd,
    TransactionProducer,
    TransactionSendResult,
    TransactionState,
)

__all__ = [
    "ClientConfig",
    "ConsumeConcurrentlyStatus",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeOrderlyStatus",
    "ConsumerConfig",
    "LitePullConfig",
    "LitePullConsumer",
    "MessageModel",
    "MessageSelector",
    "Producer",
    "ProducerConfig",
    "PullConsumer",
    "PushConsumer",
    "RetryQueue",
    "SendResult",
    "SendStatus",
    "TransactionEnd",
    "TransactionProducer",
    "TransactionSendResult",
    "TransactionState",
]
