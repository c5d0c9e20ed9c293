"""Callers, and their permissions. Every decision about permission is made in this file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from computepool.core.errors import Forbidden, NotFound

#: The pool's own account, which pays for what the hub wants to know (hub_jobs.py). Nobody can sign in to it.
POOL_ACCOUNT = "acc_pool"


class Role(StrEnum):
    ADMIN = "admin"  #: runs the hub; sees and manages everything
    SUBMITTER = "submitter"  #: submits jobs
    PROVIDER = "provider"  #: lends nodes


class Action(StrEnum):
    """What a route lets its caller do. A route without one fails the tests."""

    ANYONE = "anyone"
    SIGNED_IN = "signed_in"
    NODE = "node"
    SIGNED_IN_OR_NODE = "signed_in_or_node"
    SUBMIT = "submit"
    PROVIDE = "provide"
    ADMIN = "admin"


class Scope(StrEnum):
    """What a key may be used for, within what its account may do. Each includes `read`."""

    READ = "read"  #: look at what the account may see, previews and quotes among it
    SUBMIT = "submit"  #: submit and cancel jobs, make groups, send and drop artifacts
    PROVIDE = "provide"  #: enrol nodes, and say what they do
    ACCOUNT = "account"  #: keys, sessions and payouts
    ADMIN = "admin"  #: what administrators do


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A person (an account, through one of its keys). The roles are those that the key lets the account use."""

    account_id: str
    name: str
    roles: frozenset[str]
    key_id: str = ""
    scopes: frozenset[str] | None = None  #: None: everything its account may do

    @property
    def is_admin(self) -> bool:
        return Role.ADMIN in self.roles


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePrincipal:
    """A node, through a token signed with its own key."""

    node_id: str
    owner: str
    public_key: str
    previous_key: str | None = None  #: replaced, but accepted for a while


_ROLE_FOR = {Action.SUBMIT: Role.SUBMITTER, Action.PROVIDE: Role.PROVIDER, Action.ADMIN: Role.ADMIN}
_SCOPE_FOR = {Action.SUBMIT: Scope.SUBMIT, Action.PROVIDE: Scope.PROVIDE, Action.ADMIN: Scope.ADMIN}


def scope_for(action: Action, *, safe: bool) -> Scope:
    """What a key needs for a route that does not say it. A change that nobody classified needs the strongest word."""
    if safe and action is not Action.ADMIN:
        return Scope.READ
    return _SCOPE_FOR.get(action, Scope.ACCOUNT)


def check_action(principal: Principal, action: Action, *, scope: Scope) -> None:
    check_scope(principal, scope)
    role = _ROLE_FOR.get(action)
    if role is not None and role not in principal.roles and not principal.is_admin:
        raise Forbidden(f"This needs the role {role.value}; ask the hub's operator for it.")


def may(principal: Principal, action: Action) -> bool:
    """For what pages offer: the same answer as asking for it would get."""
    try:
        check_action(principal, action, scope=scope_for(action, safe=False))
    except Forbidden:
        return False
    return True


def check_scope(principal: Principal, scope: Scope) -> None:
    if principal.scopes is not None and not may_use(principal, scope):
        may = ", ".join(sorted(principal.scopes))
        raise Forbidden(f"This key is for {may} only; this needs one with the scope {scope.value}.")


def may_use(principal: Principal, scope: Scope) -> bool:
    """Whether the key that asks is meant for this."""
    return scope is Scope.READ or principal.scopes is None or scope in principal.scopes


def check_scopes_within(principal: Principal, requested: frozenset[str] | None) -> None:
    """A key hands on at most what it has itself."""
    if principal.scopes is None or (requested is not None and requested <= principal.scopes):
        return
    may = ", ".join(sorted(principal.scopes))
    raise Forbidden(f"This key is for {may} only; it cannot make one for more.")


def usable_roles(roles: frozenset[str], scopes: frozenset[str] | None) -> frozenset[str]:
    """An administrator's key without the scope `admin` is that of an ordinary account that may submit and provide."""
    if Role.ADMIN not in roles or scopes is None or Scope.ADMIN in scopes:
        return roles
    return (roles - {Role.ADMIN}) | {Role.SUBMITTER, Role.PROVIDER}


def scopes_from_text(text: str | None) -> frozenset[str] | None:
    """As the database keeps them."""
    return None if text is None else frozenset(text.split(","))


def scopes_to_text(scopes: frozenset[str] | None) -> str | None:
    return None if scopes is None else ",".join(sorted(scopes))


def check_owner(principal: Principal, owner: str | None, *, what: str) -> None:
    """Object-level check. A stranger's object is answered like one that does not exist."""
    if owner is None or (owner != principal.account_id and not principal.is_admin):
        raise NotFound(f"There is no such {what}, or it is not yours.")


class _OwnedRow(Protocol):
    @property
    def account_id(self) -> str: ...


R = TypeVar("R", bound=_OwnedRow)


def owned(principal: Principal, row: R | None, *, what: str) -> R:
    """The row, for whoever may manage it."""
    check_owner(principal, None if row is None else row.account_id, what=what)
    assert row is not None
    return row


def check_not_pools(account_id: str) -> None:
    """The pool's own account is the hub's alone: whoever had a key to it, or filled it, could pay nodes with it unseen."""
    if account_id == POOL_ACCOUNT:
        raise Forbidden(
            "This is the pool's own account, which the hub keeps by itself; nobody may change or use it."
        )


def may_manage(principal: Principal | None, owner: str) -> bool:
    return principal is not None and (principal.is_admin or principal.account_id == owner)


def scope(principal: Principal) -> str | None:
    """Lists show an account its own rows, and an admin everything."""
    return None if principal.is_admin else principal.account_id
