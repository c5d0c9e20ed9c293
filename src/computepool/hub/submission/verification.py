"""Terms of a submission for the verification of its results: how many runs, and how they are compared."""

from __future__ import annotations

from typing import Any

from computepool.core.errors import BadRequest
from computepool.core.jobs.lifecycle import JobKind
from computepool.core.trust import comparison, verification
from computepool.core.trust.verification import Mode, VerificationPolicy
from computepool.hub.jobs.comparison import Comparison
from computepool.hub.settings import Settings
from computepool.hub.submission import images
from computepool.protocol.jobs.jobs import JobSpec, Needs, SubmitRequest, spec_digest

_RAM_MB = 256, 1024  #: minimum and maximum for a comparison


def policy_of(request: SubmitRequest, settings: Settings) -> VerificationPolicy:
    return policy(_verify(request), request.confidence, settings, host=request.spec.needs.host)


def policy(verify: str | None, confidence: float | None, settings: Settings, *, host: str | None) -> VerificationPolicy:
    """What the submitter asks for, or else the operator's default."""
    if confidence is not None:
        return verification.with_confidence(confidence)
    found = verification.parse(verify or settings.verify)
    if verify and host and found.mode is Mode.QUORUM:
        raise BadRequest(
            f"{found} needs nodes of {found.quorum} owners, but with a host the job runs on that node alone: "
            "remove --host or --verify.",
            field="verify",
        )
    return found


def _verify(request: SubmitRequest) -> str | None:
    """Sealed results always differ to the hub; that of a member of a gang depends on all of them; runs with volumes may start
    from different versions; and a name of an image that was not looked up may be another image on each node. So none of these
    is verified."""
    spec = request.spec
    if spec.nodes > 1:
        return _refuse_verification(
            request, "The results of a job on several nodes are not verified: remove verify and compare.", "spec.nodes"
        )
    if spec.volumes:
        return _refuse_verification(
            request, "A job that mounts volumes cannot be verified: remove verify and compare.", "spec.volumes"
        )
    if not images.is_resolved(spec):
        return _refuse_verification(
            request,
            "The hub could not look up the digest of the image, so nodes may use different ones and results cannot be "
            "verified: name the image by its digest (NAME@sha256:…), or submit with --verify none.",
            "spec.image",
        )
    if spec.seal_to is not None:
        return _refuse_verification(
            request,
            "The hub cannot read a sealed result, so it cannot verify it: remove verify and compare.",
            "spec.seal_to",
        )
    return request.verify


def _refuse_verification(request: SubmitRequest, reason: str, field: str) -> str:
    if request.verify not in (None, "none") or request.confidence or request.compare or request.compare_function:
        raise BadRequest(reason, field=field)
    return "none"


def comparison_of(
    request: SubmitRequest, policy: VerificationPolicy, settings: Settings
) -> tuple[Comparison, JobSpec | None]:
    """With the spec that calls the submitter's function, which must be stored with the jobs."""
    named = request.compare or request.compare_function
    if named and policy.mode is Mode.NONE:
        raise BadRequest(
            "Comparison needs verification: add --verify adaptive, --verify quorum:K or --confidence P.",
            field="compare",
        )
    if request.compare_function is None:
        return Comparison(within=comparison.parse(request.compare or "exact")), None
    spec = _spec(request, timeout_s=settings.compare_timeout_s)
    longest_ms = round(spec.timeout_s * 1000)
    return Comparison(function=spec_digest(spec.body()), longest_ms=longest_ms), spec


def _spec(request: SubmitRequest, *, timeout_s: float) -> JobSpec:
    """A small job with the same packages, for the same nodes as the job itself."""
    function, job = request.compare_function, request.spec
    assert function is not None
    kept = ("regions", "tags", "exclude_tags", "exclude_hosts", "properties", "isolation", "mesh_version")
    least, most = _RAM_MB
    needs: dict[str, Any] = {name: getattr(job.needs, name) for name in kept}
    needs |= {
        "ram_mb": max(least, min(most, job.needs.requirements().ram_mb)),
        "python": function.python or job.needs.python,
    }
    return JobSpec(
        kind=JobKind.FUNCTION,
        name="compare",
        needs=Needs(**needs),
        function=function.function,
        function_artifact=function.function_artifact,
        dependencies=job.dependencies,
        image=job.image,
        timeout_s=timeout_s,
        allow_pickle=job.allow_pickle,
    )
