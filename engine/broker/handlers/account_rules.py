"""Translates between RocketMQ's rules of ACL 2.0 and the permissions of an account.

    Topic:orders, Group:readers     a permission of its own     Topic:*, Group:*     the default
    Cluster:*                       watcher: asks how all stand, and changes nothing

Invariant: a rule that an account cannot say is refused, never rounded. Absent on purpose: addresses
(an address is no proof), names by their beginning, and rules that forbid one action and leave the
other to the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from engine.foundation.errors import ConfigError, RequestRefused
from engine.protocol.bodies_auth import AclInfo, PolicyEntryInfo, PolicyInfo
from engine.protocol.codes import ResponseCode
from engine.protocol.names import DLQ_PREFIX, RETRY_PREFIX, check_group, check_topic
from engine.remoting.accounts import Account, Permission

ANY: Final = "*"
CLUSTER: Final = "Cluster:*"
SUBJECT: Final = "User:"
_BOTH: Final = Permission.PUB | Permission.SUB
_ACTIONS: Final[Mapping[str, Permission]] = {
    "pub": Permission.PUB,
    "sub": Permission.SUB,
    "all": _BOTH,
}
_POLICY: Final = "Custom"


def refused(remark: str) -> RequestRefused:
    """The answer to what cannot be taken."""
    return RequestRefused(ResponseCode.INVALID_PARAMETER, remark)


def user_in(subject: str | None) -> str:
    """The name in User:name. Raises RequestRefused."""
    name = (subject or "").removeprefix(SUBJECT)
    if not name or name == subject:
        raise refused(f"The subject {subject!r} is invalid: {SUBJECT}name")
    return name


def rules_of(account: Account) -> AclInfo:
    """The permissions of an account as rules."""
    entries = [_entry(CLUSTER, ["Get"])] if account.watcher else []
    for kind, default, perms in (
        ("Topic", account.default_topic_perm, account.topic_perms),
        ("Group", account.default_group_perm, account.group_perms),
    ):
        entries += [_said(f"{kind}:{name}", permission) for name, permission in perms.items()]
        if default:
            entries.append(_said(f"{kind}:{ANY}", default))
    policies = [PolicyInfo(_POLICY, entries)] if entries else []
    return AclInfo(f"{SUBJECT}{account.credentials.access_key}", policies)


def _said(resource: str, permission: Permission) -> PolicyEntryInfo:
    if not permission:
        return _entry(resource, ["Pub", "Sub"], "Deny")
    return _entry(
        resource, [name for name in ("Pub", "Sub") if Permission[name.upper()] & permission]
    )


def _entry(resource: str, actions: list[str], decision: str = "Allow") -> PolicyEntryInfo:
    return PolicyEntryInfo(resource, actions, [], decision)


def with_rules(account: Account, rules: AclInfo) -> Account:
    """The account with these rules; of resources that they do not name it keeps its own. Raises
    RequestRefused.
    """
    for policy in rules.policies:
        for entry in policy.entries:
            if entry.source_ips:
                raise refused("sourceIps: an address is no proof, so no rule names any")
            account = _changed(account, entry.resource, _permission(entry))
    return account


def without_rules(account: Account, resource: str | None) -> Account:
    """The account without what is said of a resource; of none: without any rule."""
    if resource:
        return _changed(account, resource, None)
    try:
        return Account(account.credentials, admin=account.admin)
    except ConfigError as error:
        raise refused(str(error)) from error


def _permission(entry: PolicyEntryInfo) -> Permission:
    actions = [action.strip().lower() for action in entry.actions]
    if entry.resource == CLUSTER:
        if set(actions) - {"get", "list"} or not actions or entry.decision.lower() != "allow":
            raise refused(f"{CLUSTER}: Get and List may be allowed; administrators are Super users")
        return Permission.SUB
    permission = Permission.DENY
    for action in actions:
        if action not in _ACTIONS:
            raise refused(f"{entry.resource}: action {action} is none of Pub, Sub and All")
        permission |= _ACTIONS[action]
    match entry.decision.lower():
        case "allow" if permission:
            return permission
        case "deny" if permission == _BOTH:
            return Permission.DENY
    raise refused(f"{entry.resource}: allow Pub, Sub or All, or deny All")


def _changed(account: Account, resource: str, permission: Permission | None) -> Account:
    """The account with a permission for a resource; None: with none of its own."""
    try:
        if resource == CLUSTER:
            return replace(account, watcher=permission is not None)
        kind, _, name = resource.partition(":")
        match kind.lower():
            case "topic":
                if name == ANY:
                    return replace(account, default_topic_perm=permission or Permission.DENY)
                check_topic(name)
                if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                    raise refused(f"{resource}: a topic of a group is decided by its group")
                perms = _with(account.topic_perms, name, permission)
                return replace(account, topic_perms=perms)
            case "group":
                if name == ANY:
                    return replace(account, default_group_perm=permission or Permission.DENY)
                check_group(name)
                perms = _with(account.group_perms, name, permission)
                return replace(account, group_perms=perms)
    except ConfigError as error:
        raise refused(str(error)) from error
    raise refused(f"resource {resource}: Topic:name, Group:name, Topic:*, Group:* or {CLUSTER}")


def _with(
    perms: Mapping[str, Permission], name: str, permission: Permission | None
) -> dict[str, Permission]:
    rest = {key: value for key, value in perms.items() if key != name}
    return rest if permission is None else {**rest, name: permission}
