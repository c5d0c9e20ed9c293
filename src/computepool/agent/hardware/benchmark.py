"""Measures the hardware at the hub's request, only while the node is idle and in the sandbox where jobs run.

Decides when to measure and reports the result; measure.py is the program that measures. A job that arrives meanwhile cancels
the measurement, which is tried again later.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from computepool.agent.context import Node
from computepool.agent.execution.executor import Executor
from computepool.agent.execution.job_environment import JobEnvironment
from computepool.agent.hardware import driver, measure
from computepool.agent.hub_link.identity import UNSIGNED
from computepool.agent.sandbox.base import Limits, SandboxError, SandboxPolicy, Status
from computepool.agent.sandbox.scratch import remove_tree
from computepool.core.errors import ComputePoolError
from computepool.protocol.nodes.hardware import HardwareReport, HardwareView

_log = logging.getLogger(__name__)

#: The program is killed after this time.
MEASURE_S = 2.5
#: How long a node must have been idle before it is measured.
QUIET_S = 1.0
_CHECK_S = 0.05
_TRIES = 5
_SCRIPT = "measure.py"
_OUTPUT_MAX = 64 * 1024
_NOTES_MAX, _NOTE_CHARS = 8, 190
#: A card's context takes memory of the host.
_MEMORY_MB, _MEMORY_WITH_CARDS_MB = 256, 4096


@dataclass(eq=False)
class Benchmark:
    node: Node
    job_environment: JobEnvironment
    executor: Executor
    _: KW_ONLY
    work_dir: Path

    def __post_init__(self) -> None:
        self._requested_id = ""
        self._requested = asyncio.Event()
        self.view: HardwareView | None = None  #: the hub's view of the last report

    def request(self, id_: str) -> None:
        """Schedule a measurement for the hub; a newer request replaces an older one."""
        self._requested_id = id_
        self._requested.set()

    async def run(self) -> None:
        while True:
            await self._requested.wait()
            self._requested.clear()
            try:
                await self._report(self._requested_id)
            except ComputePoolError as error:
                _log.info("the hub refused the measurement: %s", error.detail)
            except (OSError, SandboxError, ValidationError) as error:
                _log.warning("cannot measure this machine: %s", error)
            except Exception:  # noqa: BLE001 - a measurement that fails must never end the node
                _log.exception("the measurement failed")

    async def _report(self, id_: str) -> None:
        for _ in range(_TRIES):
            await self._wait_until_quiet()
            if (found := await self._measure()) is not None:
                break
        else:
            return  # A node that is never idle is rated by its jobs.
        fields = {**found, **await self._network(), "id": id_, "signature": UNSIGNED}
        report = self.node.identity.sign_message(HardwareReport.model_validate(fields))
        self.view = await self.node.client.hardware(report)
        level = logging.WARNING if self.view.standing == "lowered" else logging.INFO
        _log.log(level, "hardware: %s", self.view.sentence)

    async def _wait_until_quiet(self) -> None:
        """A node is also idle between two calls of a program that makes one after the other; do not measure then."""
        executor = self.executor
        await executor.wait_until_idle()
        while executor.attempts or self.node.clock.steady() - executor.idle_since < QUIET_S:
            await asyncio.sleep(_CHECK_S)
            await executor.wait_until_idle()

    async def _measure(self) -> dict[str, Any] | None:
        """None if a job arrived meanwhile, because that distorts the measurement."""
        workdir = self.work_dir / f"measure-{self.node.clock.entropy(4).hex()}"
        workdir.mkdir(mode=0o700)
        try:
            shutil.copyfile(measure.__file__, workdir / _SCRIPT)
            (workdir / _SCRIPT).chmod(0o644)
            output, undisturbed = await self._run_in(workdir)
        finally:
            remove_tree(workdir)
        return collect(output, cards=len(self.job_environment.cards)) if undisturbed else None

    async def _run_in(self, workdir: Path) -> tuple[bytes, bool]:
        cards = range(len(self.job_environment.cards))
        limits = Limits(memory_mb=_MEMORY_WITH_CARDS_MB if cards else _MEMORY_MB, wall_s=MEASURE_S, disk_mb=64)
        policy = self._policy(workdir, limits, cards)
        with tempfile.TemporaryFile() as output:
            process = self.job_environment.sandbox.spawn(
                ["python3", _SCRIPT], workdir=workdir, limits=limits, policy=policy, stdout=output.fileno()
            )
            ended = asyncio.create_task(process.finish())
            try:
                undisturbed = await self._watch(ended)
                if not ended.done():
                    process.kill(Status.TIMEOUT)
                await ended
            finally:
                ended.cancel()
                process.close()
            output.seek(0)
            return output.read(_OUTPUT_MAX), undisturbed

    def _policy(self, workdir: Path, limits: Limits, cards: Sequence[int]) -> SandboxPolicy:
        plain = self.job_environment.policy(workdir, limits=limits, env={}, cards=cards)
        files = driver.cublas() if cards else {}
        mounts = {path: f"{driver.LIBRARIES}/{name}" for name, path in files.items()}
        policy = replace(plain, mounts={**plain.mounts, **mounts})
        sandbox = self.job_environment.sandbox
        inside = {name: sandbox.inside(path, workdir=workdir, policy=policy) for name, path in files.items()}
        return replace(policy, env={**policy.env, **_cublas_at(inside)})

    async def _watch(self, ended: asyncio.Task[Any]) -> bool:
        """Wait for the end or the time limit; False if a job arrived first."""
        deadline = self.node.clock.steady() + MEASURE_S
        while not ended.done() and self.node.clock.steady() < deadline:
            if self.executor.attempts:
                return False
            await asyncio.sleep(_CHECK_S)
        return True

    async def _network(self) -> dict[str, Any]:
        try:
            seconds, size, transfer_s = await self.node.client.probe()
        except ComputePoolError:
            return {}
        net = None if size < _OUTPUT_MAX else round(size / max(1e-3, transfer_s - seconds) / 1e6)
        return {"rtt_us": round(seconds * 1e6), "net_mb_s": net}


def collect(output: bytes, *, cards: int) -> dict[str, Any]:
    """Parse the program's output, which is not trusted."""
    found: dict[str, Any] = {}
    gflops: list[int | None] = [None] * cards
    notes: list[str] = []
    for line in output.splitlines():
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            fields = json.loads(line)
            if isinstance(fields.get("card"), int) and 0 <= fields["card"] < cards:
                gflops[fields["card"]] = fields.get("gflops")
            found |= {name: fields[name] for name in ("cpu", "memory_mb_s", "disk_mb_s") if name in fields}
            notes += [str(fields["note"])[:_NOTE_CHARS]] if "note" in fields else []
    if cards and not notes and None in gflops:
        notes.append("GPUs: there is no cuBLAS library here to multiply matrices with")
    return {**found, "gflops": gflops, "notes": notes[:_NOTES_MAX]}


def measure_here(folder: Path, *, cards: int) -> dict[str, Any]:
    """Run the same program without sandbox and hub, for the doctor. Blocks for at most MEASURE_S."""
    files = driver.cublas() if cards else {}
    environment = {**os.environ, **_cublas_at({name: str(path) for name, path in files.items()})}
    try:
        done = subprocess.run(
            [sys.executable, "-I", measure.__file__],
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=MEASURE_S,
            check=False,
        )
        output = done.stdout
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
    return collect(output, cards=cards)


def _cublas_at(files: Mapping[str, str]) -> dict[str, str]:
    path = next((place for name, place in files.items() if name.startswith("libcublas.so")), None)
    return {} if path is None else {measure.CUBLAS_ENV: path}
