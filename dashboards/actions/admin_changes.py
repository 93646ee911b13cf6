"""Previews changes to groups and users, and applies them exactly as previewed.

Place in the walk: below `previewed_changes`. The preview is what the service would write to the
audit, from a transaction that is rolled back. Invariant: the transaction that applies the change is
rolled back too when its audit differs from what was shown. Absent on purpose: tokens, which are
shown once, to whoever can start executors; imports.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dashboards.access.visitors import Visitor, Visitors
from dashboards.actions.job_previews import Facts, Preview, Wish, wrong_by
from dashboards.actions.previewed_changes import (
    NO_DATABASE,
    Changes,
    OtherThanPreviewed,
    PanelState,
    why_not,
)
from engine.foundation.errors import ConfigError, TidemarkError
from pipelines.database.database import Database
from pipelines.scheduler.page_queries import PageService
from pipelines.scheduler.store.audit import Noted, changes_in, last_noted, noted_since

KIND: Final = "change of groups and users"
ADMINISTRATOR: Final = "administrator"
RIGHTS: Final = ("the jobs of groups", ADMINISTRATOR)
"""What the store says of an edit that changes nothing."""
SECRETS: Final = ("password",)
"""Values that no version is made of: it is sent to the browser."""
Values = Mapping[str, str]


def _apply(service: PageService, action: str, values: Values) -> None:
    name, as_name = values.get("name", ""), values.get("as_name", "").strip()
    title, user = values.get("title", ""), values.get("user", "").strip()
    match action:
        case "group-add":
            app_name = values.get("app_name", "").strip()
            service.add_group(app_name, title=title, addresses=_addresses(values))
        case "group-edit":
            service.edit_group(name, title=title, addresses=_addresses(values))
        case "group-copy":
            service.copy_group(name, as_name)
        case "group-remove":
            service.remove_group(name)
        case "user-add":
            service.add_user(user, is_admin=_is_admin(values), apps=_apps(values))
            if values.get("password"):
                service.set_password(user, values["password"])
        case "user-edit":
            service.edit_user(name, is_admin=_is_admin(values), apps=_apps(values))
        case "user-copy":
            service.copy_user(name, as_name)
        case "user-password":
            service.set_password(name, values.get("password", ""))
        case "user-remove":
            service.remove_user(name)


_ACTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "group-add": (
        "Make a group",
        "Executors of this application run its jobs, with the common token.",
    ),
    "group-edit": ("Change group {name}", "Runs from now on go where its executors are then."),
    "group-copy": ("Copy group {name}", "The copy has no jobs, and the common token."),
    "group-remove": ("Remove group {name}", "It has no jobs, and is gone for good."),
    "user-add": ("Make a user", "Without a password he cannot sign in."),
    "user-edit": ("Change user {name}", "Where he has signed in, he has to again."),
    "user-copy": ("Copy user {name}", "The copy has the same rights, and no password."),
    "user-password": (
        "Another password for {name}",
        "Where he has signed in, he has to again.",
    ),
    "user-remove": (
        "Remove user {name}",
        "He can do nothing any more; what he has done stays in the audit.",
    ),
}
"""The title, and the effect in words."""
ADMIN_ACTIONS: Final = tuple(_ACTIONS)
_FIELDS_OF: Final[Mapping[str, Sequence[str]]] = {
    "app_name": ("as_name", "app_name"),
    "user": ("as_name", "user"),
    "title": ("title",),
    "addresses": ("addresses",),
    "executor address": ("addresses",),
    "group": ("groups",),
    "password": ("password",),
}
"""Beside which field an error stands: the first of these that the action has."""


class AdminChanges(Changes):
    """What administrators change on pages."""

    def __init__(self, visitors: Visitors) -> None:
        super().__init__(visitors, kind=KIND)

    def opened(self, visitor: Visitor, action: str, name: str) -> PanelState:
        """The panel of an action on a group or a user, with fields that hold what stands now."""
        wish = Wish(action, 0, {"name": name})
        try:
            service = self._visitors.service(visitor)
            if service is None:
                return PanelState(wish, refused=NO_DATABASE)
            return self.preview(visitor, replace(wish, values=_standing(service, action, name)))
        except TidemarkError as error:
            return PanelState(wish, refused=why_not(error))

    def _previewed(
        self, database: Database, visitor: Visitor, wish: Wish
    ) -> tuple[Preview, Facts | None]:
        title, effect = _ACTIONS[wish.action]
        named = title.format(name=wish.values.get("name", ""))
        try:
            with database.rehearsal() as rehearsed:
                noted = self._noted(rehearsed, visitor, wish)
                groups = self._visitors.service_at(rehearsed, visitor).groups()
        except ConfigError as error:
            return Preview(
                named,
                wrong=wrong_by(error, wish, lambda key: _FIELDS_OF.get(key, ())),
                version=_version(wish, ()),
            ), None
        names = {one.group_id: one.app_name for one in groups}
        changed = tuple(line for one in noted for line in _lines(one, names))
        return Preview(named, (effect,), changes=changed, version=_version(wish, noted)), None

    def _apply(
        self, database: Database, visitor: Visitor, now: PanelState, *, version: str, key: str
    ) -> str:
        del key  # Nothing outside of the transaction has to know it.
        with database.together() as at_once:
            if _version(now.wish, self._noted(at_once, visitor, now.wish)) != version:
                raise OtherThanPreviewed
        return ""

    def _done(self, wish: Wish, result: str) -> PanelState:
        del result
        title = _ACTIONS[wish.action][0].format(name=wish.values.get("name", ""))
        return PanelState(wish, done=f"{title}: it is done.")

    def _noted(self, database: Database, visitor: Visitor, wish: Wish) -> list[Noted]:
        since = last_noted(database)
        _apply(self._visitors.service_at(database, visitor), wish.action, wish.values)
        return noted_since(database, since)


def _standing(service: PageService, action: str, name: str) -> dict[str, str]:
    """What the fields of an action hold when its panel is opened."""
    match action:
        case "group-add":
            return {"app_name": "", "title": "", "addresses": ""}
        case "group-edit":
            group = next((one for one in service.groups() if one.app_name == name), None)
            addresses = () if group is None else group.manual_addresses or ()
            title = "" if group is None else group.title
            return {"name": name, "title": title, "addresses": "\n".join(addresses)}
        case "group-copy" | "user-copy":
            return {"name": name, "as_name": f"{name}-2"[:64]}
        case "user-add":
            return {"user": "", "rights": RIGHTS[0], "groups": "", "password": ""}
        case "user-edit":
            user = next((one for one in service.users() if one.name == name), None)
            apps = {one.group_id: one.app_name for one in service.groups()}
            listed = () if user is None else user.group_ids
            return {
                "name": name,
                "rights": RIGHTS[user is not None and user.is_admin],
                "groups": ", ".join(apps.get(one, str(one)) for one in listed),
            }
        case "user-password":
            return {"name": name, "password": ""}
    return {"name": name}


def _lines(noted: Noted, names: Mapping[int, str]) -> list[tuple[str, str, str]]:
    if noted.action == "password":
        return [("a password", "", "set")]
    return [
        (name, _text(name, old, names), _text(name, new, names))
        for name, (old, new) in changes_in(noted).items()
    ]


def _text(name: str, value: Any, names: Mapping[int, str]) -> str:
    if value is None:
        return "they register" if name == "addresses" else ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(str(names.get(one, one)) for one in value)
    return str(value)


def _version(wish: Wish, noted: Sequence[Noted]) -> str:
    """A digest of what would be noted; what is new has no number yet."""
    values = sorted(pair for pair in wish.values.items() if pair[0] not in SECRETS)
    audit = [(one.action, one.action == "add" or one.subject, one.detail) for one in noted]
    return hashlib.sha256(json.dumps([wish.action, values, audit]).encode()).hexdigest()[:32]


def _is_admin(values: Values) -> bool:
    return values.get("rights") == ADMINISTRATOR


def _apps(values: Values) -> list[str]:
    return [one.strip() for one in values.get("groups", "").split(",") if one.strip()]


def _addresses(values: Values) -> list[str] | None:
    return [one for one in re.split(r"[\s,]+", values.get("addresses", "")) if one] or None
