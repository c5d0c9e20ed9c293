"""Codes with which machines become nodes: for one, or for the hosts of a small mesh."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from computepool.protocol.base import Page, Reply, Request

HOSTS_MAX = 1_000


class EnrolCodeRequest(Request):
    #: how many may enrol with it; none: as many as the hub lets
    hosts: int | None = Field(default=1, ge=1, le=HOSTS_MAX)
    lifetime_s: float | None = Field(default=None, gt=0, le=30 * 24 * 3600)  #: none: as long as the hub says


class JoinCommand(Reply):
    """One line to type on the machine that joins."""

    title: str
    command: str


class EnrolCodeReply(Reply):
    id: str = ""  #: names the code from now on; nobody can join with it
    code: str
    expires_at_ms: int
    command: str  #: what to type on the other machine
    hosts: int = 1
    commands: list[JoinCommand] = []  #: everything to type there, in order
    warning: str = ""  #: why another machine cannot join with it, and what to do about that


class JoinStep(Reply):
    """One thing that happens while a machine becomes a node."""

    name: Literal["code", "poll", "sandbox", "hardware", "ready", "job"]
    title: str
    state: Literal["waiting", "done", "warning", "skipped"]  #: warning: done, but not as it should be
    at_ms: int | None = None  #: when it was done
    detail: str  #: what was found; or why not yet, and what to do


class JoinedNode(Reply):
    node_id: str
    name: str
    online: bool
    steps: list[JoinStep]
    complete: bool  #: every step is done or was skipped


class JoinStatus(Reply):
    """What became of a code. The code itself is never shown again."""

    id: str
    state: Literal["waiting", "used", "expired"]  #: waiting: somebody may still join with it, and nobody did
    sentence: str
    expires_at_ms: int
    open: bool  #: another machine may still join with it
    used: int
    hosts: int
    nodes: list[JoinedNode] = []  #: newest first
    steps: list[JoinStep]  #: of the newest node; with none yet, what will happen


class JoinCodeView(Reply):
    """A code that several hosts may join with. The code itself is shown once, when it is made."""

    id: str
    expires_at_ms: int
    used: int
    hosts: int


class JoinCodePage(Page):
    codes: list[JoinCodeView]
