"""`python -m bench.gpu`: what the sandbox and the pool cost a training run on a GPU. Prints Markdown for docs/gpu.md.

The same program, `examples/train_gpu.py`, runs with the same Python and the same torch in three ways: as a bare process, in the
sandbox `namespace`, and as a job of a pool with a hub and a node. The first two alternate, so that a change of the card's clock
affects both alike. Needs an environment with torch, root, and bubblewrap. Without a GPU it only shows that everything runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from computepool.agent.execution.job_environment import JobEnvironment, prepare_runtime
from computepool.agent.hardware import gpus, nvml
from computepool.agent.sandbox.backends.bubblewrap import BubblewrapSandbox
from computepool.agent.sandbox.base import Limits
from computepool.agent.sandbox.scratch import make_workdir, remove_tree
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.core.jobs.lifecycle import TERMINAL
from computepool.sdk.pool import Pool
from computepool.testing.processes import RealPool

SCRIPT = Path(__file__).parents[1] / "examples" / "train_gpu.py"
OVERHEAD_TARGET = 3.0  #: percent
_CORES, _RAM_MB = 4, 16_000
_RUN_S = 240.0
_CACHES = Path("/proc/sys/vm/drop_caches")
_FIRST_STEP = re.compile(r"first step after ([0-9.]+) s")


@dataclass(frozen=True, slots=True)
class Torch:
    """An environment with torch: a virtualenv."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python3"

    @property
    def site(self) -> Path:
        return next(iter(sorted(self.folder.glob("lib/python3.*/site-packages"))))


@dataclass(slots=True)
class Page:
    """The Markdown so far."""

    lines: list[str] = field(default_factory=list)
    failures: int = 0

    def write(self, *lines: str) -> None:
        self.lines += lines
        print("\n".join(lines), flush=True)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        self.write("", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}")
        self.write(*(f"| {' | '.join(map(str, row))} |" for row in rows), "")

    def part(self, title: str, work: Callable[[], None]) -> None:
        """A part that fails says so, and the others still run."""
        self.write(f"### {title}")
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever broke, the other figures are worth having
            traceback.print_exc()
            self.failures += 1
            self.write("", f"Not measured: {type(error).__name__}: {error}", "")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("torch", type=Path, help="a virtualenv with torch")
    parser.add_argument("--steps", type=int, default=400, help="training steps of each run")
    parser.add_argument("--seconds", type=float, default=150.0, help="for the comparison of bare and sandboxed runs")
    parser.add_argument(
        "--drop-caches", action="store_true", help="before each cold start; slows all other programs down"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the Markdown to this file")
    chosen = parser.parse_args(arguments)
    page, torch = Page(), Torch(chosen.torch)
    page.part("Machine", lambda: machine(page, torch))
    page.part("Training: a bare process and the sandbox", lambda: overhead(page, torch, chosen))
    page.part("Training: a job of a pool", lambda: through_pool(page, torch, chosen))
    if chosen.out is not None:
        chosen.out.write_text("\n".join(page.lines) + "\n")
    return 1 if page.failures else 0


def machine(page: Page, torch: Torch) -> None:
    versions = nvml.versions()
    found = subprocess.run(
        [torch.python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=True
    )
    cards = [
        f"{card.name}, {card.vram_mb} MB, compute capability {card.compute_capability}" for card in gpus.find_cards()
    ]
    page.table(
        ("what", "value"),
        [
            ("GPU", "; ".join(cards) or "none"),
            ("driver, CUDA", f"{versions.driver or 'none'}, {versions.cuda or 'none'}"),
            ("torch", found.stdout.strip()),
            ("cores, kernel", f"{len(os.sched_getaffinity(0))}, {platform.release()}"),
            ("Python", platform.python_version()),
        ],
    )


# ---------------------------------------------------------------- bare and sandboxed
@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    wall_s: float
    first_step_s: float
    train_s: float
    tokens_per_s: float
    vram_mb: int

    @classmethod
    def read(cls, folder: Path, *, wall_s: float) -> Trained:
        found = json.loads((folder / "training.json").read_text())
        return cls(wall_s=wall_s, **{name: found[name] for name in cls.__slots__ if name != "wall_s"})


class Runs:
    """The training program outside and inside the sandbox, with the same variables."""

    def __init__(self, torch: Torch, folder: Path, steps: int) -> None:
        (folder / "cache").mkdir(mode=0o755)
        self._torch, self._folder = torch, folder
        self._arguments = ["--steps", str(steps), "--every", "100", "--no-checkpoints"]
        runtime = prepare_runtime(folder / "cache")
        self._sandbox = BubblewrapSandbox(SandboxConfig(cache_dir=folder / "cache", runtime=runtime))
        self._cards = gpus.find_cards()
        self._environment = JobEnvironment(self._sandbox, runtime, self._cards)
        self._limits = Limits(memory_mb=_RAM_MB, cpus=_CORES, pids=512, wall_s=_RUN_S, tmp_mb=2_000, open_files=4_096)

    def close(self) -> None:
        self._sandbox.close()

    def bare(self) -> Trained:
        with self._workdir() as workdir:
            env = {"PATH": "/usr/bin:/bin", "HOME": str(workdir), "OMP_NUM_THREADS": str(_CORES)}
            began = time.perf_counter()
            argv = [str(self._torch.python), "-s", SCRIPT.name, *self._arguments]
            done = subprocess.run(
                argv, cwd=workdir, env=env, capture_output=True, text=True, timeout=_RUN_S, check=False
            )
            wall_s = time.perf_counter() - began
            if done.returncode:
                raise RuntimeError(f"the bare process ended with {done.returncode}: {done.stderr[-2000:]}")
            return Trained.read(workdir / "outputs", wall_s=wall_s)

    def sandboxed(self) -> Trained:
        with self._workdir() as workdir, tempfile.TemporaryFile() as errors:
            cards = range(len(self._cards[:1]))
            policy = self._environment.policy(
                workdir, limits=self._limits, env={}, packages=self._torch.site, cards=cards, saves=False
            )
            began = time.perf_counter()
            process = self._sandbox.spawn(
                ["python3", "-s", SCRIPT.name, *self._arguments],
                workdir=workdir,
                limits=self._limits,
                policy=policy,
                stderr=errors.fileno(),
            )
            with contextlib.closing(process):
                ended = process.wait(_RUN_S)
                wall_s = time.perf_counter() - began
            if ended is None or not ended.ok:
                errors.seek(0)
                raise RuntimeError(f"the sandboxed process ended with {ended}: {errors.read()[-2000:].decode()}")
            return Trained.read(workdir / "outputs", wall_s=wall_s)

    @contextlib.contextmanager
    def _workdir(self) -> Iterator[Path]:
        workdir = make_workdir(self._folder / "work", "train")
        (workdir / SCRIPT.name).write_bytes(SCRIPT.read_bytes())
        try:
            yield workdir
        finally:
            remove_tree(workdir)


def overhead(page: Page, torch: Torch, chosen: argparse.Namespace) -> None:
    with _ground() as folder, contextlib.closing(Runs(torch, folder, chosen.steps)) as runs:
        ways = {"bare": runs.bare, "sandbox": runs.sandboxed}
        dropped = chosen.drop_caches and drop_caches()
        cold = {"bare": ways["bare"]()}
        if dropped:
            drop_caches()
        cold["sandbox"] = ways["sandbox"]()
        warm: dict[str, list[Trained]] = {way: [] for way in ways}
        began = time.monotonic()
        while len(warm["bare"]) < 2 or time.monotonic() - began < chosen.seconds:
            order = list(ways) if len(warm["bare"]) % 2 else list(ways)[::-1]
            for way in order:
                warm[way].append(ways[way]())
    rounds = len(warm["bare"])
    rows = [
        (
            way,
            f"{cold[way].first_step_s:.2f} s",
            f"{_median(warm[way], 'first_step_s'):.2f} s",
            f"{_median(warm[way], 'train_s'):.3f} s",
            f"{_median(warm[way], 'tokens_per_s'):,.0f}",
            f"{_median(warm[way], 'wall_s'):.2f} s",
            f"{warm[way][0].vram_mb} MB",
        )
        for way in ways
    ]
    head = (
        "",
        "first step, cold",
        "first step, warm",
        f"{chosen.steps - 1} further steps",
        "tokens/s",
        "whole run",
        "VRAM",
    )
    page.table(head, rows)
    bare, boxed = _median(warm["bare"], "train_s"), _median(warm["sandbox"], "train_s")
    percent = 100 * (boxed / bare - 1)
    spread = 100 * (max(run.train_s for run in warm["bare"]) / min(run.train_s for run in warm["bare"]) - 1)
    page.write(
        f"Medians of {rounds} warm rounds. The sandbox costs {percent:+.2f} % of the training time (target: at most "
        f"{OVERHEAD_TARGET:g} %: {'met' if percent <= OVERHEAD_TARGET else 'MISSED'}); bare runs differ by {spread:.2f} % among "
        f"themselves. Cold: {'page caches dropped before each' if dropped else 'the first run; page caches were not dropped'}.",
        "",
    )


def _median(runs: Sequence[Trained], name: str) -> float:
    return float(statistics.median(getattr(run, name) for run in runs))


def drop_caches() -> bool:
    os.sync()
    try:
        _CACHES.write_text("3")
    except OSError:
        return False
    return True


# ---------------------------------------------------------------- through a hub and a node
def through_pool(page: Page, torch: Torch, chosen: argparse.Namespace) -> None:
    with pool_with_torch(torch) as (real, options):
        client = real.client()
        if chosen.drop_caches:
            drop_caches()
        starts = ("cold", "warm", "warm, again")
        rows = [(name, *_follow(client, _steps(chosen.steps), options)[:3]) for name in starts]
        page.table(("start", "submitted to first step", "of it in the job", "whole job"), rows)
        *_, samples = _follow(client, _steps(4 * chosen.steps), options)
        page.write(f"Shown while a longer run of {4 * chosen.steps} steps went on (GPU percent, VRAM in MB):", "")
        page.write(", ".join(f"{percent} % {vram}" for percent, vram in samples[:40]) or "no samples", "")


def _steps(count: int) -> list[str]:
    return ["--steps", str(count), "--every", "100"]


def _follow(
    client: Pool, arguments: Sequence[str], options: dict[str, Any]
) -> tuple[str, str, str, list[tuple[Any, Any]]]:
    """Submit the training, and watch its log and its usage until it ends."""
    began, first_s, inside = time.perf_counter(), 0.0, "?"
    future = client.run(options["script"], arguments, wait=False, **options["job"])
    samples: list[tuple[Any, Any]] = []
    after, seen = 0, ""
    while (job := client.jobs.get(future.job_id)).state not in TERMINAL:
        page = client.jobs.log_page(future.job_id, after=after, timeout=0.2)
        after, seen = page.cursor, seen + "".join(chunk.text for chunk in page.chunks)
        if not first_s and (found := _FIRST_STEP.search(seen)):
            first_s, inside = time.perf_counter() - began, found[1]
        now = [attempt.now for attempt in client.jobs.usage(future.job_id).attempts if attempt.now is not None]
        if now and (not samples or samples[-1] != (now[-1].gpu_percent, now[-1].vram_mb)):
            samples.append((now[-1].gpu_percent, now[-1].vram_mb))
        time.sleep(0.1)
    if job.error:
        raise RuntimeError(job.error)
    if not first_s and (found := _FIRST_STEP.search(client.jobs.log_text(future.job_id))):
        inside = found[1]
    return f"{first_s:.2f} s", f"{inside} s", f"{time.perf_counter() - began:.2f} s", samples


@contextlib.contextmanager
def pool_with_torch(torch: Torch) -> Iterator[tuple[RealPool, dict[str, Any]]]:
    """A hub and a node whose jobs find torch, and the script and the options of such a job."""
    with _ground() as folder, RealPool(cache=_cache(folder)) as real:
        real.start_hub()
        cards = bool(gpus.find_cards())
        # Without isolation a job may read the environment in its place.
        real.start_agent(sandbox="process", gpus=True, cores=8, ram_mb=4 * _RAM_MB)
        script = folder / SCRIPT.name
        script.write_text(re.sub(r"# /// script\n(# .*\n)*?# ///\n", "", SCRIPT.read_text()))
        job: dict[str, Any] = {"env": {"PYTHONPATH": str(torch.site)}, "cores": _CORES, "ram": "16GB", "verify": "none"}
        if cards:
            job["vram"] = "16GB"
        else:
            job["ram"] = "2GB"
        yield real, {"script": script, "job": job}


def _cache(folder: Path) -> Path:
    (folder / "cache").mkdir(mode=0o755)
    return folder / "cache"


@contextlib.contextmanager
def _ground() -> Iterator[Path]:
    """A folder that every user can pass."""
    folder = Path(tempfile.mkdtemp(prefix="computepool-bench-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        remove_tree(folder)


if __name__ == "__main__":
    sys.exit(main())
