"""Wire models of the codes with which machines become nodes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from computepool.protocol.base import Page, Reply, Request

HOSTS_MAX = 1_000


class EnrolCodeRequest(Request):
    #: how many machines may enrol with it; null: as many as the hub allows
    hosts: int | None = Field(default=1, ge=1, le=HOSTS_MAX)
    lifetime_s: float | None = Field(default=None, gt=0, le=30 * 24 * 3600)  #: null: the hub's default


class JoinCommand(Reply):
    """One command to run on the machine that joins."""

    title: str
    command: str


class EnrolCodeReply(Reply):
    id: str = ""  #: identifies the code from now on; it cannot be used to join
    code: str
    expires_at_ms: int
    command: str  #: to run on the other machine
    hosts: int = 1
    commands: list[JoinCommand] = []  #: all commands to run there, in order
    warning: str = ""  #: why another machine cannot join with it, and what to do about that


class JoinStep(Reply):
    """One step of a machine that becomes a node."""

    name: Literal["code", "poll", "sandbox", "hardware", "ready", "job"]
    title: str
    state: Literal["waiting", "done", "warning", "skipped"]  #: warning: done, but with a problem
    at_ms: int | None = None  #: when it was done
    detail: str  #: what was found, or why it is not done yet and what to do


class JoinedNode(Reply):
    node_id: str
    name: str
    online: bool
    steps: list[JoinStep]
    complete: bool  #: every step is done or skipped


class JoinStatus(Reply):
    """How a code has been used. The code itself is never shown again."""

    id: str
    state: Literal["waiting", "used", "expired"]  #: waiting: still valid, and not used yet
    sentence: str
    expires_at_ms: int
    open: bool  #: another machine may still join with it
    used: int
    hosts: int
    nodes: list[JoinedNode] = []  #: newest first
    steps: list[JoinStep]  #: of the newest node or, if there is none yet, the steps to come


class JoinCodeView(Reply):
    """A code with which several hosts may join. The code itself is shown once, when it is created."""

    id: str
    expires_at_ms: int
    used: int
    hosts: int


class JoinCodePage(Page):
    codes: list[JoinCodeView]
