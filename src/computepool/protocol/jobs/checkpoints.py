"""Checkpoints on the wire: what a node says of one, and what people see of it."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field, StringConstraints

from computepool.protocol.base import Count, Id, Name, Reply, Request
from computepool.protocol.jobs.jobs import CheckpointView, OutputFile
from computepool.protocol.nodes.nodes import OUTPUTS_MAX, OutputRef

SEQ_MAX = 1_000_000


class CheckpointReport(Request):
    """A running attempt saved where it is. Its files are uploaded before this is said."""

    attempt_id: Id
    seq: int = Field(ge=1, le=SEQ_MAX)  #: the how-manieth of this attempt: the same one twice is one
    files: list[OutputRef] = Field(default=[], max_length=OUTPUTS_MAX)
    progress: float | None = Field(default=None, ge=0, le=1)
    ran_ms: Count  #: how long the attempt had run when it was made
    last: bool = False  #: made because the node stops, or the job moves; never too soon
    move_to: Name | None = None  #: with the last one of a job that moves: the host that it goes on at
    #: by the node's key over signed_text()
    signature: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{86}$")]

    def signed_text(self) -> bytes:
        fields = self.model_dump(exclude={"signature"}, mode="json")
        if self.move_to is None:  # nodes and hubs that do not know it sign and check the same
            del fields["move_to"]
        return b"checkpoint\n" + json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


class CheckpointReply(Reply):
    kept: bool
    reason: str = ""  #: why not, in a sentence; the job runs on and the one before stays
    over: bool = False  #: the attempt does not have the job any more


class CheckpointDetail(CheckpointView):
    job_id: str
    outputs: list[OutputFile] = []  #: its files, each an artifact that the submitter may fetch
