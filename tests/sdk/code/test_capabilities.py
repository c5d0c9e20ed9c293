"""Detection of code that saves checkpoints or moves, without running it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

import computepool
import computepool as cp
from computepool import ComputeJob, ComputeJobState, checkpoint as save_now
from computepool.sdk.classes.compute_job import StateT
from computepool.sdk.code import capabilities

SAVES, MOVES = {"checkpoints": True}, {"moves": True}


def plain(item: int) -> int:
    return item + 1


def by_module(item: int) -> None:
    computepool.checkpoint("a", progress=item)


def by_alias(item: int) -> None:
    cp.dispatch_to("there")


def by_name(item: int) -> None:
    save_now("a")


def by_own_import(item: int) -> None:
    from computepool import restored

    restored()


def by_helper(item: int) -> None:
    [by_module(each) for each in range(item)]


def by_line(item: int) -> None:
    print(f"::move {item} there")


def of_somebody_else(model: Any) -> None:
    model.checkpoint("weights.pt")


class Called:
    def __call__(self) -> None:
        by_alias(1)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (plain, {}),
        (of_somebody_else, {}),
        (len, {}),
        (by_module, SAVES),
        (by_alias, MOVES),
        (by_name, SAVES),
        (by_own_import, SAVES),
        (by_helper, SAVES),
        (by_line, MOVES),
        (functools.partial(by_helper, 3), SAVES),
        (lambda: by_name(1), SAVES),
        (Called(), MOVES),
    ],
)
def test_functions_are_recognised_by_the_names_they_use(
    function: Callable[..., Any], expected: dict[str, bool]
) -> None:
    assert capabilities.of_function(function) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("print(1)", {}),
        ("import torch\ntorch.utils.checkpoint.checkpoint(f)", {}),
        ("import computepool as c\ndef f():\n    c.checkpoint('x')", SAVES),
        ("from computepool import (\n    dispatch_to,\n)\ndispatch_to('x')", MOVES),
        ("#!/bin/sh\nmkdir -p \"$d\"; echo '::checkpoint a'", SAVES),
        ("#!/bin/sh\nif then fi ::progress", {}),
        ("x = '\\d'; raise SystemExit('this was run')", {}),
    ],
)
def test_scripts_are_recognised_by_names_and_markers(source: str, expected: dict[str, bool]) -> None:
    assert capabilities.of_script(source) == expected


class Base(ComputeJob[StateT]):
    def helper(self) -> None:
        self.checkpoint(0.5)


class Saves(Base[ComputeJobState]):
    def run_compute_job(self) -> None:
        self.helper()


class Moves(ComputeJob[ComputeJobState]):
    def on_arrival(self) -> None:
        """Here."""


class Neither(ComputeJob[ComputeJobState]):
    def run_compute_job(self) -> None:
        self.state.job_key = ""


def test_job_classes_are_recognised_by_their_methods() -> None:
    assert [capabilities.of_class(kind) for kind in (Saves, Moves, Neither)] == [SAVES, MOVES, {}]


def test_the_joblib_backend_refuses_checkpoints() -> None:
    backend = pytest.importorskip("computepool.sdk.jobs.joblib_backend")
    with pytest.raises(TypeError, match=r"share its checkpoints\. Use pool\.map"):
        backend.ComputePoolBackend(checkpoints=True)
