"""Requests of a running job to the hub, through its node: jobs and groups of its own, and messages to its collector.

`seq` numbers the calls of an attempt. The same call of a job, by number and content, has one effect, whichever of its
attempts makes it: one that starts again finds the jobs that the one before submitted.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from computepool.protocol.base import Id, NewName, Reply, Request
from computepool.protocol.jobs.jobs import SubmitRequest

SEQ_MAX = 2**31 - 1
#: Of an encoded value; the hub's own limit may be lower.
MESSAGE_MAX = 256 * 1024

CallSeq = Annotated[int, Field(ge=1, le=SEQ_MAX)]


class ChildrenRequest(Request):
    """One submission of a running job."""

    seq: CallSeq
    request: SubmitRequest
    detached: bool = False  #: they go on if their parent does not succeed


class ChildGroupRequest(Request):
    seq: CallSeq
    name: NewName


class MessageRequest(Request):
    """A value for the collector."""

    seq: CallSeq
    value: Annotated[str, StringConstraints(max_length=MESSAGE_MAX)]  #: encoded (see values.py)


class MessageReply(Reply):
    number: int  #: in its group, in the order in which messages came


class MessageView(Reply):
    number: int
    job_id: Id
    key: str | None = None  #: of the job, in its group
    attempt: int  #: which of its tries sent it: one that starts again sends its messages again
    seq: int  #: in that attempt
    at_ms: int
    value: str  #: encoded (see values.py)


class MessagePage(Reply):
    messages: list[MessageView]
    cursor: int  #: ask again with after=cursor
    open: int | None = None  #: what the group still waits for; only told when there are no new messages
