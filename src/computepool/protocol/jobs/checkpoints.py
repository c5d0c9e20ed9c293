"""Wire models of checkpoints, as nodes report them and people see them."""

from __future__ import annotations

import json

from pydantic import Field

from computepool.protocol.base import Count, Id, Name, Reply, Request, Signature
from computepool.protocol.jobs.views import CheckpointView, OutputFile
from computepool.protocol.nodes.nodes import OUTPUTS_MAX, OutputRef

SEQ_MAX = 1_000_000


class CheckpointReport(Request):
    """A checkpoint of a running attempt. Its files are uploaded first."""

    attempt_id: Id
    seq: int = Field(ge=1, le=SEQ_MAX)  #: its number within the attempt; a repeated number is the same checkpoint
    files: list[OutputRef] = Field(default=[], max_length=OUTPUTS_MAX)
    progress: float | None = Field(default=None, ge=0, le=1)
    ran_ms: Count  #: how long the attempt had run
    last: bool = False  #: the final one, because the node stops or the job moves; never too soon
    move_to: Name | None = None  #: in the final one of a job that moves, the host on which it continues
    signature: Signature  #: over signed_text()

    def signed_text(self) -> bytes:
        fields = self.model_dump(exclude={"signature"}, mode="json")
        if self.move_to is None:  # earlier agents and hubs do not know the field
            del fields["move_to"]
        return b"checkpoint\n" + json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


class CheckpointReply(Reply):
    kept: bool
    reason: str = ""  #: why not, as a sentence; the job continues and the previous checkpoint stays
    over: bool = False  #: the attempt no longer has the job


class CheckpointDetail(CheckpointView):
    job_id: str
    outputs: list[OutputFile] = []  #: its files, as artifacts that the submitter may fetch
