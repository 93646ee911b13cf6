"""Admin client: an `Admin` object for cluster queries and changes, grouped by resource type.

Works on our engine and on an Apache RocketMQ alike. What lives on several brokers is requested from
each and joined.

Invariant: a query changes nothing; an order names what it changes. Absent on purpose: deciding
when; the command line, the demo, the dashboard and notebooks do.
"""

from engine.admin.api.admin import Admin, admin_at
from engine.admin.api.groups import QueueProgress
from engine.admin.api.messages import FoundMessages, TracedStep

__all__ = ["Admin", "FoundMessages", "QueueProgress", "TracedStep", "admin_at"]
