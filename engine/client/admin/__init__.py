"""Questions and orders to a cluster from outside the walk: one `Admin` with a part for each
noun.

Works on our engine and on an Apache RocketMQ alike. What lives on several brokers is asked of each
and joined.

Invariant: reading changes nothing; an order names what it changes. Absent on purpose: deciding
when; the command line, the demo, the dashboard and notebooks do.
"""

from engine.client.admin.admin import Admin, admin_at
from engine.client.admin.groups import QueueProgress
from engine.client.admin.messages import FoundMessages, TracedStep

__all__ = ["Admin", "FoundMessages", "QueueProgress", "TracedStep", "admin_at"]
