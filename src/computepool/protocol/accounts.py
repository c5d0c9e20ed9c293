"""Wire models of accounts, keys, sign-in, events and problems."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from computepool.protocol.base import Micro, NewName, Page, Reply, Request

Role = Literal["admin", "submitter", "provider"]
Scope = Literal["read", "submit", "provide", "account", "admin"]
AccountName = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]*$")]


class AccountRequest(Request):
    name: AccountName
    roles: list[Role] = Field(default=["submitter", "provider"], min_length=1)


class SubmitterReputationView(Reply):
    """How an account's jobs behave on other accounts' nodes (docs/reputation.md)."""

    score: float  #: from 0 to 1, at this moment
    completed: int  #: runs on other accounts' nodes, of all time, that were completed and paid for
    failed: int  #: failed through their own fault
    harmful: int  #: stopped by a limit: time, memory, output, money
    cancelled: int  #: cancelled while a node had them
    changed_at_ms: int | None = None  #: time of the last run that counted; null if there is none


class AccountView(Reply):
    id: str
    name: str
    roles: list[str]
    created_at_ms: int
    jobs_open_max: int | None = None  #: its own quotas; null: the hub's
    spend_per_day_max: int | None = None
    artifact_bytes_max: int | None = None  #: bytes of files stored at the hub
    artifact_keep_s: int | None = None  #: how long files are kept after their jobs have ended
    submitter_reputation: SubmitterReputationView | None = None  #: in /me and in the list of accounts
    approval_id: str | None = None  #: the request waits for a second administrator under this id


class RolesRequest(Request):
    roles: list[Role] = Field(min_length=1, max_length=3)


class RefusalRequest(Request):
    reason: NewName


class ApprovalView(Reply):
    """An administrator's request that another one must approve."""

    id: str
    kind: str  #: top-up, sign-up grant, roles, node review, payout
    summary: str
    requested_by: str
    requested_at_ms: int
    state: str
    approved_by: str | None = None  #: for a payout, the first of two approvers
    can_approve: bool = False  #: you may approve it


class ApprovalList(Reply):
    approvals: list[ApprovalView]


class QuotaRequest(Request):
    """Sets all quotas; null means the hub's own limit."""

    jobs_open_max: int | None = Field(default=None, ge=0, le=10_000_000)  #: unfinished jobs at a time
    spend_per_day_max: Micro | None = None  #: microcredits
    artifact_bytes_max: int | None = Field(default=None, ge=0, le=2**60)  #: bytes of files stored at the hub
    #: how long files are kept after their jobs have ended
    artifact_keep_s: int | None = Field(default=None, ge=0, le=100 * 365 * 24 * 3600)


class AccountPage(Page):
    accounts: list[AccountView]


class KeyRequest(Request):
    name: NewName
    expires_in_s: float | None = Field(default=None, gt=0, le=10 * 365 * 24 * 3600)
    account_id: str | None = None  #: administrators may create keys for others
    #: what it may be used for; null: the same as the key that creates it
    scopes: list[Scope] | None = Field(default=None, min_length=1, max_length=5)


class KeyRotateRequest(Request):
    """Create a key with the same name and scopes; the old one expires after the overlap."""

    overlap_s: float = Field(default=24 * 3600, ge=0, le=30 * 24 * 3600)
    #: null: the lifetime of the old one
    expires_in_s: float | None = Field(default=None, gt=0, le=10 * 365 * 24 * 3600)


class RevokedReply(Reply):
    revoked: int  #: keys and sessions that were valid until now


class KeyView(Reply):
    id: str
    name: str
    kind: Literal["key", "cookie"] = "key"  #: cookie: a browser's session
    account_id: str
    account_name: str | None = None  #: in lists
    created_at_ms: int
    expires_at_ms: int | None = None
    last_used_ms: int | None = None
    revoked_at_ms: int | None = None
    scopes: list[str] | None = None  #: null: everything the account may do
    state: Literal["good", "expired", "revoked"] = "good"
    this: bool = False  #: it is the one that makes the request
    can_revoke: bool = False


class NewKeyReply(KeyView):
    key: str  #: shown once


class KeyPage(Page):
    keys: list[KeyView]


class SignInRequest(Request):
    """Exchange a one-time code for a key (`kind="key"`, for a CLI) or a browser session (`kind="cookie"`)."""

    code: Annotated[str, StringConstraints(min_length=8, max_length=128)]
    kind: Literal["key", "cookie"] = "key"
    name: NewName = "signed in by link"


class SignInReply(Reply):
    account: AccountView
    key: str | None = None


class LinkReply(Reply):
    """A sign-in link for an account, valid once and for a limited time. Shown only here."""

    account_id: str
    link: str
    code: str  #: the code of the link, for the sign-in page or `pool login`
    expires_at_ms: int


class EventView(Reply):
    """One state transition: who, what, from, to, why, when."""

    seq: int
    at_ms: int
    actor: str
    action: str
    job_id: str | None = None
    attempt_id: str | None = None
    node_id: str | None = None
    group_id: str | None = None
    account_id: str | None = None
    before: str | None = None
    after: str | None = None
    reason: str | None = None
    data: dict[str, Any] | None = None


class EventPage(Reply):
    """Oldest first, or newest first if requested."""

    events: list[EventView]
    cursor: int  #: the newest event that was examined: continue with `after=`
    next: int | None = None  #: newest first: older events with `before=`; null: there are none
    searched_to_ms: int | None = None  #: newest first: how far back was searched; null: to the beginning
    #: of accounts, nodes, jobs and groups in these events, by id, as far as you may know them
    names: dict[str, str] = {}


class News(Reply):
    """The objects with new events since the previous news, so that clients know what to reload."""

    cursor: int  #: the number of the last event
    events: int  #: the number of new events
    kinds: list[str]  #: the first words of their actions: `job` for `job.queued`
    job_ids: list[str] = []
    group_ids: list[str] = []
    node_ids: list[str] = []
    partial: bool = False  #: there were too many events to examine: anything may have changed


class Problem(Reply):
    """RFC 9457 problem details."""

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
    field: str | None = None
    retry_after_s: float | None = None


class HubInfo(Reply):
    name: str
    version: str
    protocol: int
    time_ms: int
    nodes_online: int
    nodes: int
    queued: int
    running: int
    account: AccountView | None = None
    setup: bool = False  #: nobody has signed in here yet
    mesh_version: str = ""  #: only nodes of this version are admitted; empty: any
    signin_hint: str = ""  #: how to sign in, for those who have not
