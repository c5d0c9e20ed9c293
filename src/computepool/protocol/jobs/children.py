"""Requests of a running job to the hub, through its node: child jobs and groups, and messages to its collector.

`seq` numbers the calls of an attempt. Calls of a job with the same number and content have one effect, whichever attempt
makes them. So an attempt that starts again finds the jobs that an earlier one submitted.
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
    detached: bool = False  #: they continue if their parent does not succeed


class ChildGroupRequest(Request):
    seq: CallSeq
    name: NewName


class MessageRequest(Request):
    """A value for the collector."""

    seq: CallSeq
    value: Annotated[str, StringConstraints(max_length=MESSAGE_MAX)]  #: encoded (see values.py)


class MessageReply(Reply):
    number: int  #: its number in the group, in order of arrival


class MessageView(Reply):
    number: int
    job_id: Id
    key: str | None = None  #: of the job, in its group
    attempt: int  #: the attempt that sent it; an attempt that starts again repeats its messages
    seq: int  #: within that attempt
    at_ms: int
    value: str  #: encoded (see values.py)


class MessagePage(Reply):
    messages: list[MessageView]
    cursor: int  #: request again with after=cursor
    open: int | None = None  #: items that the group still waits for; null if there are new messages
