"""Bodies of RocketMQ 5's requests about users and their rules (ACL 2.0).

Invariant: names are RocketMQ's, in snake case. Absent on purpose: what the words in them mean.
"""

from __future__ import annotations

import msgspec

from engine.protocol.body_codec import Body, Part


class UserInfo(Body):
    """AUTH_CREATE_USER (3001), AUTH_UPDATE_USER (3002); one of what AUTH_LIST_USER answers."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    """Super or Normal."""
    user_status: str | None = None
    """enable or disable."""


class PolicyEntryInfo(Part):
    """What is decided of one resource."""

    resource: str
    """Its kind and its name, as Topic:orders; Topic:* is each that has no entry."""
    actions: list[str] = msgspec.field(default_factory=list)
    source_ips: list[str] | None = None
    decision: str = "Allow"


class PolicyInfo(Part):
    """Entries of one kind."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] = msgspec.field(default_factory=list)


class AclInfo(Body):
    """AUTH_CREATE_ACL (3006), AUTH_UPDATE_ACL (3007), AUTH_GET_ACL (3009)."""

    subject: str | None = None
    """User:name."""
    policies: list[PolicyInfo] = msgspec.field(default_factory=list)
