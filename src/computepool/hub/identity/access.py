"""Callers and their permissions. Every decision about a permission is made here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from computepool.core.errors import Forbidden, NotFound

T = TypeVar("T")


class _OwnedRow(Protocol):
    @property
    def account_id(self) -> str: ...


R = TypeVar("R", bound=_OwnedRow)
#: The pool's own account, which pays for hub jobs. Nobody can sign in to it.
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

    READ = "read"  #: read what the account may see, including previews and quotes
    SUBMIT = "submit"  #: submit and cancel jobs, make groups, send and drop artifacts
    PROVIDE = "provide"  #: enrol and manage nodes
    ACCOUNT = "account"  #: keys, sessions and payouts
    ADMIN = "admin"  #: what administrators do


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An account, through one of its keys. The roles are those that the key lets the account use."""

    account_id: str
    name: str
    roles: frozenset[str]
    key_id: str = ""
    scopes: frozenset[str] | None = None  #: None: everything its account may do

    @property
    def is_admin(self) -> bool:
        return Role.ADMIN in self.roles

    @property
    def holder(self) -> str:
        """Under which artifacts are referred to."""
        return self.account_id


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePrincipal:
    """A node, through a token signed with its own key."""

    node_id: str
    owner: str
    public_key: str
    previous_key: str | None = None  #: replaced, but accepted for a while

    @property
    def holder(self) -> str:
        """Under which artifacts are referred to until a report hands them to the job's account."""
        return self.node_id


_ROLE_FOR = {Action.SUBMIT: Role.SUBMITTER, Action.PROVIDE: Role.PROVIDER, Action.ADMIN: Role.ADMIN}
_SCOPE_FOR = {Action.SUBMIT: Scope.SUBMIT, Action.PROVIDE: Scope.PROVIDE, Action.ADMIN: Scope.ADMIN}


def scope_for(action: Action, *, safe: bool) -> Scope:
    """The scope that a route needs unless it names one. A change that is not classified needs `account`."""
    if safe and action is not Action.ADMIN:
        return Scope.READ
    return _SCOPE_FOR.get(action, Scope.ACCOUNT)


def check_action(principal: Principal, action: Action, *, scope: Scope) -> None:
    if not may_use(principal, scope):
        only = ", ".join(sorted(principal.scopes or ()))
        raise Forbidden(f"This key is for {only} only; this request needs a key with the scope {scope.value}.")
    role = _ROLE_FOR.get(action)
    if role is not None and role not in principal.roles and not principal.is_admin:
        raise Forbidden(f"This needs the role {role.value}; ask the hub's operator for it.")


def may(principal: Principal, action: Action) -> bool:
    """Whether `check_action` would pass; for what views offer."""
    try:
        check_action(principal, action, scope=scope_for(action, safe=False))
    except Forbidden:
        return False
    return True


def may_use(principal: Principal, scope: Scope) -> bool:
    return scope is Scope.READ or principal.scopes is None or scope in principal.scopes


def check_scopes_within(principal: Principal, requested: frozenset[str] | None) -> None:
    """A key can create only keys with its own scopes or fewer."""
    if principal.scopes is None or (requested is not None and requested <= principal.scopes):
        return
    may = ", ".join(sorted(principal.scopes))
    raise Forbidden(f"This key is for {may} only; it cannot create a key with more scopes.")


def usable_roles(roles: frozenset[str], scopes: frozenset[str] | None) -> frozenset[str]:
    """An administrator's key without the scope `admin` acts as an ordinary account that may submit and provide."""
    if Role.ADMIN not in roles or scopes is None or Scope.ADMIN in scopes:
        return roles
    return (roles - {Role.ADMIN}) | {Role.SUBMITTER, Role.PROVIDER}


def scopes_from_text(text: str | None) -> frozenset[str] | None:
    """The scopes as the database stores them."""
    return None if text is None else frozenset(text.split(","))


def check_owner(principal: Principal, owner: str | None, *, what: str) -> None:
    """The object-level check. Another account's object is answered like one that does not exist."""
    if owner is None or (owner != principal.account_id and not principal.is_admin):
        raise NotFound(f"There is no such {what}, or it is not yours.")


def chosen_account(principal: Principal, account_id: str | None) -> str:
    """The caller's own account, or any account for an administrator."""
    chosen = account_id or principal.account_id
    check_owner(principal, chosen, what="account")
    return chosen


def require_found(row: T | None, *, what: str, field: str | None = None) -> T:
    """The row, or NotFound."""
    if row is None:
        raise NotFound(f"There is no such {what}.", field=field)
    return row


def require_owned(principal: Principal, row: R | None, *, what: str) -> R:
    """The row, or NotFound unless the caller may manage it."""
    check_owner(principal, None if row is None else row.account_id, what=what)
    assert row is not None
    return row


def check_not_pools(account_id: str) -> None:
    """The pool's own account belongs to the hub: with a key to it, or credits in it, someone could pay nodes unseen."""
    if account_id == POOL_ACCOUNT:
        raise Forbidden("This is the pool's own account, which only the hub manages; nobody may change or use it.")


def may_manage(principal: Principal | None, owner: str) -> bool:
    return principal is not None and (principal.is_admin or principal.account_id == owner)


def scope(principal: Principal) -> str | None:
    """The account whose rows lists show; None, for administrators: all."""
    return None if principal.is_admin else principal.account_id
