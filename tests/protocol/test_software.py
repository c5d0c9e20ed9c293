"""What nodes may claim of their software, and when an environment satisfies dependencies."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from computepool.core.environment import Environment
from computepool.core.jobs.lifecycle import JobKind
from computepool.protocol.jobs.jobs import InputFile, JobSpec
from computepool.protocol.jobs.requirements import check_requirement, dependencies_key, satisfies
from computepool.protocol.jobs.spec_rules import check_spec
from computepool.protocol.nodes.software import EnvironmentModel, OffersSoftware

OFFER: dict[str, Any] = {"name": "ml", "python": "3.12", "packages": {"torch": "2.11.0+cu130"}}
TORCH = Environment.of(
    "3.12", {"torch": "2.11.0+cu130", "ruamel-yaml": "0.18", "pre": "3.0rc1", "odd": "not.a.version"}
)


@pytest.mark.parametrize(
    ("dependency", "satisfied"),
    [
        ("torch", True),
        ("Torch>=2.4", True),
        ("torch>=2.4,<3", True),
        ("torch==2.11.0", True),
        ("torch==2.11.0+cu130", True),
        ("torch==2.11.0+cu124", False),
        ("torch>=2.12", False),
        ("torch[opt]", False),
        ("torchvision", False),
        ("ruamel.yaml", True),
        ("ruamel_yaml>=0.17", True),
        ("pre>=2", True),
        ("pre>=3", False),
        ("odd", False),
        ("absent; python_version < '3.12'", True),
        ("absent; python_version >= '3.12'", False),
        ("absent; sys_platform == 'win32'", True),
    ],
)
def test_dependencies_and_versions(dependency: str, satisfied: bool) -> None:
    assert satisfies(TORCH, [check_requirement(dependency)]) is satisfied


def test_all_dependencies_must_be_satisfied() -> None:
    assert satisfies(TORCH, ["torch", "pre"])
    assert not satisfies(TORCH, ["torch", "numpy"])


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "x\x1b[2J"},
        {"packages": {"torch\n": "1"}},
        {"packages": {"Torch": "1"}},
        {"packages": {"torch": "1\n2"}},
        {"packages": {"torch": ""}},
        {"packages": {"torch": "1" * 65}},
        {"packages": {f"p{number}": "1" for number in range(3_001)}},
        {"python": "2.7"},
        {"cuda": "; rm"},
        {"extra": 1},
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_claims_that_are_not_plain_are_refused(changed: dict[str, Any]) -> None:
    EnvironmentModel.model_validate(OFFER)
    with pytest.raises(ValidationError):
        EnvironmentModel.model_validate(OFFER | changed)


def test_all_environments_of_a_node_together_are_bounded() -> None:
    def offering(*counts: int, name: str = "e{}") -> OffersSoftware:
        found = [
            {"name": name.format(place), "python": "3.12", "packages": {f"p{number}": "1" for number in range(count)}}
            for place, count in enumerate(counts)
        ]
        return OffersSoftware.model_validate({"environments": found})

    offering(1_500, 1_500)
    for bad in (lambda: offering(1_501, 1_500), lambda: offering(*[1] * 9), lambda: offering(1, 1, name="same")):
        with pytest.raises(ValidationError):
            bad()


def test_only_large_inputs_decide_where_a_job_starts() -> None:
    def warm(size: int) -> frozenset[str]:
        file = InputFile(name="data", digest="a" * 64, size=size)
        return JobSpec(kind=JobKind.COMMAND, name="x", argv=["x"], inputs=[file]).requirements().warm

    assert warm(1_000_000) == frozenset(), "jobs that differ in small inputs stay interchangeable"
    assert warm(1_000_000_000) == {"artifact:" + "a" * 64}


def test_the_dependencies_of_a_script_are_those_of_its_job() -> None:
    source = '# /// script\n# dependencies = ["Torch >= 2.4"]\n# ///\n'
    spec = check_spec(JobSpec(kind=JobKind.SCRIPT, name="x", source=source, dependencies=["numpy"]))
    needs = spec.requirements()
    assert needs.software == {"Torch>=2.4", "numpy"}
    assert needs.warm == {dependencies_key(needs.software)}
    assert "offered_only" not in spec.body(), "older specs keep their digests"


def test_the_key_of_a_set_does_not_depend_on_its_order() -> None:
    assert dependencies_key(["b", "a"]) == dependencies_key(("a", "b")) != dependencies_key(["ab"])
