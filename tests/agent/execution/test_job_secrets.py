"""Secrets of an attempt in the agent: which worker it gets, the login of a registry, and what shows a value."""

from __future__ import annotations

import pytest

from computepool.agent.execution.attempt_result import BadJob, failed_result
from computepool.agent.execution.attempts import Attempt
from computepool.agent.execution.job_secrets import mask_result
from computepool.agent.execution.specs import prepare
from computepool.core.jobs.lifecycle import JobKind, Reason
from computepool.protocol.jobs.jobs import JobSpec
from computepool.protocol.nodes.nodes import Grant
from computepool.protocol.secrets import SecretBundle

VALUE = "correct-horse-battery-staple"


def attempt(bundle: SecretBundle | None = None, *, account: str = "acc_sam") -> Attempt:
    spec = JobSpec(kind=JobKind.COMMAND, name="x", argv=["true"], secrets={"TOKEN": "TOKEN"}, registry_secret="LOGIN")
    grant = Grant(attempt_id="job_a-1", attempt_no=1, job_id="job_a", lane="l", spec="0" * 64, account_id=account)
    made = Attempt(grant=grant, spec=prepare("0" * 64, spec, memory_mb=100), sent_at=0, received_at=0)
    if bundle is not None:
        made.receive_secrets(bundle)
    return made


def test_a_worker_with_secrets_serves_only_attempts_of_its_account_with_the_same_ones() -> None:
    bundle = SecretBundle(env={"TOKEN": VALUE})
    key = attempt(bundle).worker_key
    assert attempt(bundle).worker_key == key
    others = (attempt(), attempt(bundle, account="acc_eve"), attempt(SecretBundle(env={"TOKEN": "other"})))
    assert all(other.worker_key != key for other in others)


def test_no_representation_shows_a_value() -> None:
    made = attempt(SecretBundle(env={"TOKEN": VALUE}, registry=f"sam:{VALUE}"))
    assert VALUE not in f"{made!r} {made.worker_key!r} {made.secrets!r} {made.secrets}"


def test_the_login_of_a_registry() -> None:
    made = attempt(SecretBundle(registry="sam:pass:word\n"))
    assert made.login == made.software(()).login == made.worker_key.software.login == ("sam", "pass:word")
    assert attempt(SecretBundle()).login is None
    for text in ("sam", "sam:", ":word"):
        with pytest.raises(BadJob, match="The secret LOGIN is no login of the form USER:PASSWORD"):
            attempt(SecretBundle(registry=text))
    result = failed_result(Reason.BAD_JOB, "skopeo: wrong password pass:word for sam")
    mask_result(made, result)
    assert result.error == "skopeo: wrong password *** for sam"


def test_each_line_of_a_key_is_masked() -> None:
    key = "-----BEGIN KEY-----\nc2VjcmV0IG9uZQ==\n}\n-----END KEY-----\n"
    made = attempt(SecretBundle(env={"KEY": key}))
    result = failed_result(Reason.BAD_JOB, "line 2 is c2VjcmV0IG9uZQ== and line 3 }")
    mask_result(made, result)
    assert result.error == "line 2 is *** and line 3 }"
