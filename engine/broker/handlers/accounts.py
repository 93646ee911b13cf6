"""Handles requests of tools about accounts: RocketMQ 5's users and their rules.

Place in the walk: beside it, on brokers of a Raft group (`agreed_answers`): each answer leaves when
the group agrees on what it says.

Invariant: no answer and no remark has a secret in it, which RocketMQ's have. Absent on purpose:
users that are disabled: delete them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeVar

from engine.broker.accounts import AgreedAccounts
from engine.broker.handlers.account_rules import (
    refused,
    rules_of,
    user_in,
    with_rules,
    without_rules,
)
from engine.foundation.errors import ConfigError, ProtocolError, RequestRefused
from engine.protocol import fastjson
from engine.protocol.bodies_auth import AclInfo, UserInfo
from engine.protocol.body_codec import Body
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import (
    AclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)
from engine.remoting import Handlers, Peer, serves
from engine.remoting.accounts import Account
from engine.remoting.signing import Credentials

_TYPES: Final = {"super": True, "normal": False}

Decoded = TypeVar("Decoded", bound=Body)


@dataclass(slots=True, kw_only=True, eq=False)
class AccountHandlers(Handlers):
    """Requests of tools about accounts."""

    accounts: AgreedAccounts

    @serves(RequestCode.AUTH_CREATE_USER)
    def create_user(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """AUTH_CREATE_USER (3001)."""
        name, user = _user(request)
        if self.accounts.find(name) is not None:
            raise refused(f"The user {name} is existed")
        try:
            credentials = Credentials(name, user.password or "")
        except ConfigError as error:
            raise refused(str(error)) from error
        self.accounts.put(Account(credentials, admin=_is_super(user) or False))
        return request.respond(ResponseCode.SUCCESS)

    @serves(RequestCode.AUTH_UPDATE_USER)
    def update_user(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """AUTH_UPDATE_USER (3002): what the body leaves out stays."""
        name, user = _user(request)
        account, is_super = self._there(name), _is_super(user)
        try:
            if user.password:
                account = replace(account, credentials=Credentials(name, user.password))
            if is_super is not None:
                account = replace(account, admin=is_super)
        except ConfigError as error:
            raise refused(str(error)) from error
        self.accounts.put(account)
        return request.respond(ResponseCode.SUCCESS)

    @serves(RequestCode.AUTH_DELETE_USER)
    def delete_user(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """AUTH_DELETE_USER (3003), with its rules."""
        name = UserRequestHeader.decode(request.fields).username
        if self.accounts.find(name) is not None:
            self.accounts.delete(name)
        return request.respond(ResponseCode.SUCCESS)

    @serves(RequestCode.AUTH_GET_USER)
    def user(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """AUTH_GET_USER (3004)."""
        name = UserRequestHeader.decode(request.fields).username
        return request.respond(ResponseCode.SUCCESS, body=_info(self._there(name)).encode())

    @serves(RequestCode.AUTH_LIST_USER)
    def users(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """AUTH_LIST_USER (3005)."""
        part = ListUsersRequestHeader.decode(request.fields).filter or ""
        found = [_info(one).to_json() for one in self.accounts.all() if part in _name(one)]
        return request.respond(ResponseCode.SUCCESS, body=fastjson.dumps(found))

    @serves(RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL)
    def put_rules(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """AUTH_CREATE_ACL (3006) and AUTH_UPDATE_ACL (3007): rules of other resources stay."""
        name = user_in(AclRequestHeader.decode(request.fields).subject)
        rules = _decoded(AclInfo, request)
        self.accounts.put(with_rules(self._there(name), rules))
        return request.respond(ResponseCode.SUCCESS)

    @serves(RequestCode.AUTH_DELETE_ACL)
    def delete_rules(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """AUTH_DELETE_ACL (3008): of one resource, or all."""
        header = AclRequestHeader.decode(request.fields)
        account = self._there(user_in(header.subject))
        self.accounts.put(without_rules(account, header.resource))
        return request.respond(ResponseCode.SUCCESS)

    @serves(RequestCode.AUTH_GET_ACL)
    def rules(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """AUTH_GET_ACL (3009)."""
        name = user_in(AclRequestHeader.decode(request.fields).subject)
        return request.respond(ResponseCode.SUCCESS, body=rules_of(self._there(name)).encode())

    @serves(RequestCode.AUTH_LIST_ACL)
    def all_rules(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """AUTH_LIST_ACL (3010)."""
        header = ListAclsRequestHeader.decode(request.fields)
        part = header.resource_filter or ""
        found = []
        for rules in map(rules_of, self.accounts.all()):
            for policy in rules.policies:
                policy.entries = [one for one in policy.entries if part in one.resource]
            rules.policies = [one for one in rules.policies if one.entries]
            if rules.policies and (header.subject_filter or "") in (rules.subject or ""):
                found.append(rules.to_json())
        return request.respond(ResponseCode.SUCCESS, body=fastjson.dumps(found))

    def _there(self, name: str) -> Account:
        account = self.accounts.find(name)
        if account is None:
            raise RequestRefused(ResponseCode.USER_NOT_EXIST, f"The user {name} is not exist")
        return account


def _user(request: RemotingCommand) -> tuple[str, UserInfo]:
    name = UserRequestHeader.decode(request.fields).username
    user = _decoded(UserInfo, request)
    if (user.user_status or "enable").lower() != "enable":
        raise refused(f"user {name}: no user is disabled here; delete it")
    return name, user


def _decoded(kind: type[Decoded], request: RemotingCommand) -> Decoded:
    try:
        return kind.decode(request.body)
    except ProtocolError:  # Its text may quote the body, which has a secret in it.
        raise refused(f"the body is no {kind.__name__}") from None


def _is_super(user: UserInfo) -> bool | None:
    """None: it does not say."""
    if not user.user_type:
        return None
    found = _TYPES.get(user.user_type.lower())
    if found is None:
        raise refused(f"userType {user.user_type} is neither Super nor Normal")
    return found


def _name(account: Account) -> str:
    return account.credentials.access_key


def _info(account: Account) -> UserInfo:
    kind = "Super" if account.admin else "Normal"
    return UserInfo(_name(account), user_type=kind, user_status="enable")
