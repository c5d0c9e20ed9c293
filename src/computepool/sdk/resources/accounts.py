"""`pool.accounts` and `pool.keys`: who may use the hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from computepool.core.errors import NotFound
from computepool.protocol import accounts as wire
from computepool.protocol.hub_keys import HubKeys, verify_published
from computepool.protocol.references import ReferenceKind
from computepool.sdk.client.resource import Resource, find_id

_ALL = 1_000_000
Accounts: TypeAlias = list[wire.AccountView]
Keys: TypeAlias = list[wire.KeyView]
Approvals: TypeAlias = list[wire.ApprovalView]


class AccountApi(Resource):
    def me(self) -> wire.AccountView:
        return self._transport.get("/me", wire.AccountView)

    def hub(self) -> wire.HubInfo:
        return self._transport.get("/hub", wire.HubInfo)

    def hub_keys(self, *, pinned: Mapping[str, str] | None = None) -> dict[str, str]:
        """The hub's public keys by name, including retired ones. With `pinned` keys, only keys signed by them are added."""
        published = self._transport.get("/hub/keys", HubKeys)
        if pinned:
            published = verify_published(pinned, published)
        return {**(pinned or {}), **published.all()}

    def sign_in(self, code: str, *, name: str) -> wire.SignInReply:
        """Exchange a one-time code for a new key."""
        return self._post("/signin", wire.SignInReply, wire.SignInRequest, code=code, kind="key", name=name)

    def list(self, *, limit: int = 100) -> Accounts:
        return list(self._each("/accounts", wire.AccountPage, lambda page: page.accounts, limit=limit))

    def create(self, name: str, *, roles: Sequence[str] | None = None) -> wire.AccountView:
        return self._post("/accounts", wire.AccountView, wire.AccountRequest, name=name, roles=roles)

    def find(self, word: str) -> wire.AccountView:
        """By name, ID, or ID prefix (admin only)."""
        account_id = find_id(self._transport, ReferenceKind.ACCOUNT, word)
        for account in self._each("/accounts", wire.AccountPage, lambda page: page.accounts, limit=_ALL):
            if account.id == account_id:
                return account
        raise NotFound(f"There is no account {word}.")

    def link(self, account_id: str) -> wire.LinkReply:
        """Create a one-time sign-in link for an account (admin only)."""
        return self._transport.post(f"/accounts/{account_id}/link", wire.LinkReply)

    def set_roles(self, account_id: str, roles: Sequence[str]) -> wire.AccountView:
        """Replace an account's roles (admin only). With an `approval_id` in the reply, a second administrator must approve."""
        return self._put(f"/accounts/{account_id}/roles", wire.AccountView, wire.RolesRequest, roles=roles)

    def set_quotas(
        self,
        account_id: str,
        *,
        jobs_open_max: int | None = None,
        spend_per_day_max: int | None = None,
        artifact_bytes_max: int | None = None,
        artifact_keep: int | None = None,
    ) -> wire.AccountView:
        """Set all limits of an account (admin only). None: the hub's default.

        Money is in microcredits, files in bytes, `artifact_keep` in seconds.
        """
        return self._put(
            f"/accounts/{account_id}/quotas",
            wire.AccountView,
            wire.QuotaRequest,
            jobs_open_max=jobs_open_max,
            spend_per_day_max=spend_per_day_max,
            artifact_bytes_max=artifact_bytes_max,
            artifact_keep_s=artifact_keep,
        )


class ApprovalApi(Resource):
    """Requests that need a second administrator."""

    def list(self) -> Approvals:
        return self._transport.get("/approvals", wire.ApprovalList).approvals

    def approve(self, approval_id: str) -> wire.ApprovalView:
        return self._transport.post(f"/approvals/{approval_id}/approve", wire.ApprovalView)

    def reject(self, approval_id: str, *, reason: str) -> wire.ApprovalView:
        return self._post(f"/approvals/{approval_id}/reject", wire.ApprovalView, wire.RefusalRequest, reason=reason)


class KeyApi(Resource):
    def list(
        self, *, limit: int = 100, account_id: str | None = None, everybody: bool = False, sessions: bool = False
    ) -> Keys:
        """Your keys; for administrators also those of another or of all accounts. `sessions`: include browser sessions."""
        params = {"account_id": account_id, "all": everybody or None, "sessions": sessions or None}
        return list(self._each("/keys", wire.KeyPage, lambda page: page.keys, limit=limit, params=params))

    def create(
        self,
        name: str,
        *,
        expires_in: float | None = None,
        account_id: str | None = None,
        scopes: Sequence[str] | None = None,
    ) -> wire.NewKeyReply:
        """Create a key; only this reply contains it. Scopes: read, submit, provide, account, admin."""
        fields = {"name": name, "expires_in_s": expires_in, "account_id": account_id, "scopes": scopes}
        return self._post("/keys", wire.NewKeyReply, wire.KeyRequest, **fields)

    def rotate(self, key_id: str, *, overlap: float = 24 * 3600, expires_in: float | None = None) -> wire.NewKeyReply:
        """Create a key with the same name and scopes; the old one stops working after `overlap` seconds."""
        path, fields = f"/keys/{key_id}/rotate", {"overlap_s": overlap, "expires_in_s": expires_in}
        return self._post(path, wire.NewKeyReply, wire.KeyRotateRequest, **fields)

    def revoke_all(self, *, keep_this: bool = True, account_id: str | None = None) -> int:
        """Sign out everywhere. Returns how many keys and sessions were revoked."""
        params = {"keep_this": keep_this, "account_id": account_id}
        return wire.RevokedReply.model_validate_json(self._transport.call("DELETE", "/keys", params=params)).revoked

    def revoke(self, key_id: str) -> None:
        self._transport.call("DELETE", f"/keys/{key_id}")
