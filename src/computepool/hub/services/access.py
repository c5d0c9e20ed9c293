"""Who is asking, and what they may do. Every decision about permission is made in this file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from computepool.core.errors import Forbidden, NotFound


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A person (an account, through one of its keys)."""

    account_id: str
    name: str
    roles: frozenset[str]
    key_id: str = ""

    @property
    def is_admin(self) -> bool:
        return Role.ADMIN in self.roles


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePrincipal:
    """A node, through a token signed with its own key."""

    node_id: str
    owner: str
    public_key: str


_ROLE_FOR = {Action.SUBMIT: Role.SUBMITTER, Action.PROVIDE: Role.PROVIDER, Action.ADMIN: Role.ADMIN}


def check_action(principal: Principal, action: Action) -> None:
    role = _ROLE_FOR.get(action)
    if role is not None and role not in principal.roles and not principal.is_admin:
        raise Forbidden(f"This needs the role {role.value}; ask the hub's operator for it.")


def check_owner(principal: Principal, owner: str | None, *, what: str) -> None:
    """Object-level check. A stranger's object is answered like one that does not exist."""
    if owner is None or (owner != principal.account_id and not principal.is_admin):
        raise NotFound(f"There is no such {what}, or it is not yours.")


def may_manage(principal: Principal | None, owner: str) -> bool:
    return principal is not None and (principal.is_admin or principal.account_id == owner)


def scope(principal: Principal) -> str | None:
    """Lists show an account its own rows, and an admin everything."""
    return None if principal.is_admin else principal.account_id
