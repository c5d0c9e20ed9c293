"""Results of other jobs among the arguments of a function, as the node that runs it gets them."""

from __future__ import annotations

from computepool.protocol.base import Count, Digest, Id, Reply


class ArgumentView(Reply):
    """The result of one job."""

    job_id: Id
    result: str | None = None  #: an encoded value (see values.py), or null
    result_artifact: Digest | None = None


class ArgumentPage(Reply):
    """Results of some of the jobs. Request with `after=next` until `next` is null."""

    arguments: list[ArgumentView]
    next: Count | None = None
