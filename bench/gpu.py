"""`python -m bench.gpu`: what the sandbox and the pool cost a training run on a GPU. Prints Markdown for docs/gpu.md.

`examples/train_gpu.py` runs as a bare process, in the sandbox `namespace`, and as a job of a pool with a hub and a node whose
owner offers an environment with torch. To compare the first two, both processes live side by side and train by turns, so that
a change of the card's clock affects both alike. Needs an environment with torch, root, and bubblewrap. Without a GPU it only
shows that everything runs.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
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
from functools import partial
from pathlib import Path
from typing import IO, Any

from computepool.agent.execution.job_environment import JobEnvironment, prepare_runtime
from computepool.agent.hardware import gpus, nvml
from computepool.agent.owner import environment_list
from computepool.agent.sandbox.backends.bubblewrap import BubblewrapSandbox
from computepool.agent.sandbox.base import Limits
from computepool.agent.sandbox.scratch import make_workdir, remove_tree
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.core.jobs.lifecycle import TERMINAL
from computepool.sdk.pool import Pool
from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until

SCRIPT = Path(__file__).parents[1] / "examples" / "train_gpu.py"
OVERHEAD_TARGET = 3.0  #: percent
_CORES, _RAM_MB = 4, 16_000
_RUN_S = 120.0
_PAIRS_MIN = 4
_OFFERED_S = 60.0
_names = itertools.count()
_CACHES = Path("/proc/sys/vm/drop_caches")
_FIRST_STEP = re.compile(r"first step after ([0-9.]+) s")
#: The limits of tests on retries would repeat a job that cannot start for minutes.
_RETRIES: dict[str, Any] = {"node_faults_max": 3, "backoff_base_s": 2, "backoff_max_s": 30}
#: Reads a number of steps, trains, and answers with the seconds.
_BY_TURNS = """
import sys, time
sys.argv = ["train_gpu.py", "--no-checkpoints"]
import train_gpu
training = train_gpu.Training(train_gpu.options())
for line in sys.stdin:
    began = time.perf_counter()
    for _ in range(int(line)):
        loss = training.step()
    loss.item()  # waits for the GPU
    print(time.perf_counter() - began, flush=True)
"""


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
    parser.add_argument("--turn", type=int, default=100, metavar="STEPS", help="training steps of each turn")
    parser.add_argument("--long", type=int, default=2000, metavar="STEPS", help="of the run whose load is shown")
    parser.add_argument("--seconds", type=float, default=60.0, help="for the turns of bare and sandboxed process")
    parser.add_argument("--drop-caches", action="store_true", help="before cold starts; slows all other programs down")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the Markdown to this file")
    chosen = parser.parse_args(arguments)
    page, torch = Page(), Torch(chosen.torch)
    page.part("Machine", lambda: machine(page, torch))
    page.part("Time to the first step", lambda: first_steps(page, torch, chosen))
    page.part("Training steps", lambda: overhead(page, torch, chosen))
    page.part("A job of a pool", lambda: through_pool(page, torch, chosen))
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
@dataclass(frozen=True, slots=True)
class Started:
    stdin: IO[str]
    stdout: IO[str]

    def first_step_s(self) -> float:
        """From the start of the program to its first step, as it prints."""
        text = self.stdout.read()
        if not (found := _FIRST_STEP.search(text)):
            raise RuntimeError(f"the training ended without a step: {text[-2000:]}")
        return float(found[1])

    def train(self, steps: int) -> float:
        """Seconds, for a program that trains by turns."""
        self.stdin.write(f"{steps}\n")
        self.stdin.flush()
        line = self.stdout.readline()
        if not line:
            raise RuntimeError("the training ended before its turn")
        return float(line)


class Runner:
    """Starts the training program outside and inside the sandbox, with the same torch."""

    def __init__(self, torch: Torch, folder: Path) -> None:
        self._torch, self._folder = torch, folder
        runtime = prepare_runtime(_cache(folder))
        self._sandbox = BubblewrapSandbox(SandboxConfig(cache_dir=folder / "cache", runtime=runtime))
        self._cards = gpus.find_cards()
        self._environment = JobEnvironment(self._sandbox, runtime, self._cards)
        self._limits = Limits(memory_mb=_RAM_MB, cpus=_CORES, pids=512, wall_s=_RUN_S, tmp_mb=2_000, open_files=4_096)

    def close(self) -> None:
        self._sandbox.close()

    @contextlib.contextmanager
    def bare(self, argv: Sequence[str]) -> Iterator[Started]:
        with self._workdir() as workdir:
            env = {"PATH": "/usr/bin:/bin", "HOME": str(workdir), "OMP_NUM_THREADS": str(_CORES)}
            command, pipe = [str(self._torch.python), "-s", *argv], subprocess.PIPE
            with subprocess.Popen(command, cwd=workdir, env=env, stdin=pipe, stdout=pipe, text=True) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                try:
                    yield Started(process.stdin, process.stdout)
                finally:
                    process.kill()

    @contextlib.contextmanager
    def sandboxed(self, argv: Sequence[str]) -> Iterator[Started]:
        with self._workdir() as workdir, contextlib.ExitStack() as opened:
            policy = self._environment.policy(
                workdir,
                limits=self._limits,
                env={},
                packages=self._torch.site,
                cards=range(len(self._cards[:1])),
                saves=False,
            )
            (stdin, write), (read, stdout) = os.pipe(), os.pipe()
            started = Started(opened.enter_context(open(write, "w")), opened.enter_context(open(read)))
            try:
                process = self._sandbox.spawn(
                    ["python3", "-s", *argv],
                    workdir=workdir,
                    limits=self._limits,
                    policy=policy,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=2,
                )
            finally:
                os.close(stdin)
                os.close(stdout)
            opened.enter_context(contextlib.closing(process))
            yield started

    @contextlib.contextmanager
    def _workdir(self) -> Iterator[Path]:
        workdir = make_workdir(self._folder / "work", f"train-{next(_names)}")
        (workdir / SCRIPT.name).write_bytes(SCRIPT.read_bytes())
        (workdir / "by_turns.py").write_text(_BY_TURNS)
        try:
            yield workdir
        finally:
            remove_tree(workdir)


def first_steps(page: Page, torch: Torch, chosen: argparse.Namespace) -> None:
    argv = [SCRIPT.name, "--steps", "2", "--no-checkpoints"]
    with _ground() as folder, contextlib.closing(Runner(torch, folder)) as runner:

        def measure(way: str) -> float:
            with getattr(runner, way)(argv) as started:
                return float(started.first_step_s())

        # The very first start also fills the caches of the storage behind this machine.
        very_first = _after_drop(chosen, partial(measure, "bare"))
        ways = ("bare", "sandboxed")
        cold = {way: _after_drop(chosen, partial(measure, way)) for way in ways}
        warm = {way: [measure(way) for _ in range(3)] for way in ways}
    page.table(
        ("first step of the program", "cold", "warm"),
        [(way, f"{cold[way]:.2f} s", f"{statistics.median(warm[way]):.2f} s") for way in ways],
    )
    page.write(
        f"Cold: {'page caches dropped before' if chosen.drop_caches else 'page caches not dropped'}; the very first start of "
        f"all took {very_first:.2f} s. Warm: the median of three.",
        "",
    )


def overhead(page: Page, torch: Torch, chosen: argparse.Namespace) -> None:
    pairs: list[tuple[float, float]] = []
    with _ground() as folder, contextlib.closing(Runner(torch, folder)) as runner:
        turns = ["by_turns.py"]
        with runner.bare(turns) as bare, runner.sandboxed(turns) as boxed:
            for one in (bare, boxed):
                one.train(chosen.turn)  # the first turns also choose kernels and fill caches
            began = time.monotonic()
            while len(pairs) < _PAIRS_MIN or time.monotonic() - began < chosen.seconds:
                order = (bare, boxed) if len(pairs) % 2 else (boxed, bare)
                took = {id(one): one.train(chosen.turn) for one in order}
                pairs.append((took[id(bare)], took[id(boxed)]))
    rows = [
        (way, f"{statistics.median(times):.3f} s", f"{min(times):.3f} s", f"{max(times):.3f} s")
        for way, times in zip(("bare", "sandboxed"), zip(*pairs, strict=True), strict=True)
    ]
    page.table(("", f"{chosen.turn} steps, median", "fastest", "slowest"), rows)
    percents = sorted(100 * (second / first - 1) for first, second in pairs)
    percent, quarter = statistics.median(percents), len(percents) // 4
    page.write(
        f"{len(pairs)} pairs of turns. In the median pair the sandbox took {percent:+.2f} % longer, in the middle half of the "
        f"pairs {percents[quarter]:+.2f} to {percents[-1 - quarter]:+.2f} % (target: at most {OVERHEAD_TARGET:g} %: "
        f"{'met' if percent <= OVERHEAD_TARGET else 'MISSED'}).",
        "",
    )


def _after_drop(chosen: argparse.Namespace, work: Callable[[], float]) -> float:
    if chosen.drop_caches:
        os.sync()
        _CACHES.write_text("3")
    return work()


# ---------------------------------------------------------------- through a hub and a node
@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    first_step_s: float  #: since it was submitted
    inside_s: str  #: since the program began, as it printed
    whole_s: float
    samples: list[tuple[int | None, int | None]]  #: GPU percent and MB, as shown while it ran


def through_pool(page: Page, torch: Torch, chosen: argparse.Namespace) -> None:
    with pool_with_torch(torch) as (real, options):
        client, rows = real.client(), []
        for name in ("cold", "warm", "warm, again"):
            if name == "cold":
                _after_drop(chosen, lambda: 0.0)
            found = follow(client, chosen.turn, options)
            rows.append((name, f"{found.first_step_s:.2f} s", f"{found.inside_s} s", f"{found.whole_s:.2f} s"))
        page.table(("start", "submitted to first step", "of it in the job", "whole job"), rows)
        long = follow(client, chosen.long, options)
    page.write(f"Shown while {chosen.long} steps with checkpoints went on (GPU percent and its memory in MB):", "")
    page.write(", ".join(f"{percent} % {vram}" for percent, vram in long.samples[:40]) or "no samples", "")


def follow(client: Pool, steps: int, options: dict[str, Any]) -> Followed:
    """Submit the training, and watch its log and its usage until it ends."""
    began, first_s, samples = time.perf_counter(), 0.0, list[tuple[int | None, int | None]]()
    future = client.run(SCRIPT, ["--steps", steps, "--every", 100], wait=False, **options)
    after, seen = 0, ""
    while (job := client.jobs.get(future.job_id)).state not in TERMINAL:
        if time.perf_counter() - began > _RUN_S:
            future.cancel()
            raise TimeoutError(f"the job did not end within {_RUN_S:g} s: {job.status}")
        page = client.jobs.log_page(future.job_id, after=after)
        after, seen = page.cursor, seen + "".join(chunk.text for chunk in page.chunks)
        if not first_s and _FIRST_STEP.search(seen):
            first_s = time.perf_counter() - began
        now = [attempt.now for attempt in client.jobs.usage(future.job_id).attempts if attempt.now is not None]
        if now and (not samples or samples[-1] != (now[-1].gpu_percent, now[-1].vram_mb)):
            samples.append((now[-1].gpu_percent, now[-1].vram_mb))
        time.sleep(0.02)
    whole_s = time.perf_counter() - began
    if job.error:
        raise RuntimeError(job.error)
    inside = _FIRST_STEP.search(client.jobs.log_text(future.job_id))
    return Followed(
        first_step_s=first_s or whole_s, inside_s=inside[1] if inside else "?", whole_s=whole_s, samples=samples
    )


@contextlib.contextmanager
def pool_with_torch(torch: Torch) -> Iterator[tuple[RealPool, dict[str, Any]]]:
    """A hub, a node that offers torch, and the options of a job that trains there."""
    with _ground() as folder, RealPool(cache=_cache(folder), **_RETRIES) as real:
        real.start_hub()
        data_dir = real.folder / "node-1"
        data_dir.mkdir()
        environment_list.add(data_dir, "torch", torch.folder)
        real.start_agent(sandbox="namespace", gpus=True, cores=2 * _CORES, ram_mb=2 * _RAM_MB)
        nodes = real.client().nodes
        wait_until(lambda: any(node.profile.environments for node in nodes.list()), _OFFERED_S, "the node offers torch")
        # A job that cannot start is refused at once.
        options: dict[str, Any] = {
            "ram": f"{_RAM_MB}MB",
            "disk": "4GB",  # checkpoints of a quarter of a gigabyte
            "verify": "none",
            "offered_only": True,
            "impossible": "refuse",
        }
        yield real, options | ({"vram": "16GB", "cores": _CORES} if gpus.find_cards() else {"cores": 1})


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
