"""Codes with which machines become nodes: for one, or for the hosts of a small mesh."""

from __future__ import annotations

from pydantic import Field

from computepool.protocol.base import Page, Reply, Request

HOSTS_MAX = 1_000


class EnrolCodeRequest(Request):
    hosts: int | None = Field(
        default=1, ge=1, le=HOSTS_MAX
    )  #: how many may enrol with it; none: as many as the hub lets
    life_s: float | None = Field(default=None, gt=0, le=30 * 24 * 3600)  #: none: as long as the hub says


class EnrolCodeReply(Reply):
    code: str
    expires_at_ms: int
    command: str  #: what to type on the other machine
    hosts: int = 1


class JoinCodeView(Reply):
    """A code that several hosts may join with. The code itself is shown once, when it is made."""

    id: str
    expires_at_ms: int
    used: int
    hosts: int


class JoinCodePage(Page):
    codes: list[JoinCodeView]
