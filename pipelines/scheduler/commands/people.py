"""`tidemark scheduler groups|users|audit`: manages groups and users and shows the audit log.

Absent on purpose: work.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pipelines.base.command_options import DatabaseOption, JsonOption, PreviewOption, echo_json
from pipelines.scheduler.commands.context import moment, opened_service, text_of
from pipelines.scheduler.commands.preview import CommandService, changes, command_at

groups = typer.Typer(no_args_is_help=True, help="Groups of executors: add, edit, token, ...")
users = typer.Typer(no_args_is_help=True, help="Users and their rights: add, edit, password, ...")

AppArgument = Annotated[str, typer.Argument(help="The name of the application.")]
UserArgument = Annotated[str, typer.Argument(help="The name of the user.")]
AddressOption = Annotated[
    list[str] | None,
    typer.Option("--address", help="Where an executor is; may be given again. Else they register."),
]
AppsOption = Annotated[
    list[str] | None,
    typer.Option("--group", help="Whose jobs he may see and change; may be given again."),
]
PasswordFileOption = Annotated[
    Path | None, typer.Option(help="File whose first line is the password; else it is asked for.")
]


@groups.command("list")
def list_groups(database: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Groups: their number, application, where their executors are, and whose token they show."""
    with opened_service(database) as service:
        found = service.groups()
    if as_json:
        echo_json([asdict(group) for group in found])
        return
    for group in found:
        manual = group.manual_addresses
        where = "registered" if manual is None else ",".join(manual)
        token = "own token" if group.has_token else "common token"
        typer.echo(f"{group.group_id}  {group.app_name}  {group.title}  {where}  {token}")


@changes(groups, "add")
def add_group(
    at: CommandService,
    app_name: AppArgument,
    title: Annotated[str, typer.Option(help="What people call it.")] = "",
    address: AddressOption = None,
) -> None:
    """Make a group. Says its number."""
    group_id = at.service.add_group(app_name, title=title, addresses=address)
    at.answer({"group_id": group_id, "app_name": app_name}, str(group_id))


@changes(groups, "edit")
def edit_group(
    at: CommandService,
    app_name: AppArgument,
    *,
    title: Annotated[str | None, typer.Option(help="What people call it.")] = None,
    address: AddressOption = None,
    registered: Annotated[
        bool, typer.Option("--registered", help="Executors register; no addresses by hand.")
    ] = False,
) -> None:
    """Give a group another title, or other addresses."""
    from engine.foundation.errors import RuleBroken

    if address and registered:
        raise RuleBroken("address", address[0], "--address and --registered exclude each other")
    before = next((one for one in at.service.groups() if one.app_name == app_name), None)
    kept = None if before is None or registered else before.manual_addresses
    at.service.edit_group(app_name, title=title, addresses=address or kept)
    at.answer({"app_name": app_name, "is_done": True}, "")


@changes(groups, "copy")
def copy_group(at: CommandService, app_name: AppArgument, to: AppArgument) -> None:
    """Make a group like another, without jobs and token. Says its number."""
    group_id = at.service.copy_group(app_name, to)
    at.answer({"group_id": group_id, "app_name": to}, str(group_id))


@changes(groups, "remove")
def remove_group(at: CommandService, app_name: AppArgument) -> None:
    """Remove a group that has no jobs."""
    at.service.remove_group(app_name)
    at.answer({"app_name": app_name, "is_done": True}, "")


@groups.command("token")
def token(
    app_name: AppArgument,
    common: Annotated[bool, typer.Option("--common", help="The common one from now on.")] = False,
    file: Annotated[
        Path | None, typer.Option(help="File whose first line is the token; else one is made.")
    ] = None,
    preview: PreviewOption = False,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a group's executors an access token of their own, and say it, this once.

    Centres that run know of it within seconds; executors have to be started with it.
    """
    made = None if common else _first_line(file) if file else secrets.token_urlsafe(32)
    with command_at(database, is_preview=preview, as_json=as_json) as at:
        at.service.set_token(app_name, made)
        said = made if file is None else None
        outcome = {"app_name": app_name, "token": said, "is_done": True}
        at.answer(outcome, said or "")


@users.command("list")
def list_users(database: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Users and their rights."""
    with opened_service(database) as service:
        found = service.users()
        names = {group.group_id: group.app_name for group in service.groups()}
    if as_json:
        echo_json([asdict(user) for user in found])
        return
    for user in found:
        apps = ",".join(names.get(one, str(one)) for one in user.group_ids) or "no group"
        rights = "administrator" if user.is_admin else apps
        typer.echo(f"{user.name}  {rights}" + ("" if user.has_password else "  no password"))


@changes(users, "add")
def add_user(
    at: CommandService,
    name: UserArgument,
    admin: Annotated[bool, typer.Option("--admin", help="He may do everything.")] = False,
    group: AppsOption = None,
) -> None:
    """Make a user, who cannot sign in to pages before he has a password. With the first one,
    whoever makes him becomes an administrator.
    """
    at.service.add_user(name, is_admin=admin, apps=group or [])
    at.answer({"name": name, "is_done": True}, "")


@changes(users, "edit")
def edit_user(
    at: CommandService,
    name: UserArgument,
    *,
    admin: Annotated[bool | None, typer.Option("--admin/--no-admin", help="All rights.")] = None,
    group: AppsOption = None,
    no_group: Annotated[bool, typer.Option("--no-group", help="The jobs of none.")] = False,
) -> None:
    """Change the rights of a user: the groups that are named are all that he has then."""
    at.service.edit_user(name, is_admin=admin, apps=[] if no_group else group or None)
    at.answer({"name": name, "is_done": True}, "")


@changes(users, "copy")
def copy_user(at: CommandService, name: UserArgument, to: UserArgument) -> None:
    """Make a user with the rights of another, and no password yet."""
    at.service.copy_user(name, to)
    at.answer({"name": to, "is_done": True}, "")


@users.command("password")
def password(
    name: UserArgument,
    none: Annotated[bool, typer.Option("--none", help="Have him sign in no more.")] = False,
    password_file: PasswordFileOption = None,
    preview: PreviewOption = False,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a user another password."""
    given = None if none else _password(password_file)
    with command_at(database, is_preview=preview, as_json=as_json) as at:
        at.service.set_password(name, given)
        at.answer({"name": name, "is_done": True}, "")


@changes(users, "remove")
def remove_user(at: CommandService, name: UserArgument) -> None:
    """Remove a user; never the last administrator."""
    at.service.remove_user(name)
    at.answer({"name": name, "is_done": True}, "")


def show_audit(
    subject: Annotated[str | None, typer.Argument(help="job:7, group:2, user:ann; all.")] = None,
    before: Annotated[
        int | None, typer.Option(help="Those older than this one: the last one shown.", min=1)
    ] = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """The audit of changes, the newest first; a thousand at most."""
    with opened_service(database) as service:
        found = service.audit_of(subject, before=before)
    if as_json:
        echo_json([asdict(one) for one in found])
        return
    for one in found:
        entry = f"{moment(one.at_ms)}  {one.author}  {one.action}  {one.subject}  {one.detail}"
        typer.echo(f"{one.audit_id}  {entry}".rstrip())


def _password(file: Path | None) -> str:
    if file is not None:
        return _first_line(file)
    given: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    return given


def _first_line(file: Path) -> str:
    lines = text_of(file).splitlines()
    return lines[0] if lines else ""
