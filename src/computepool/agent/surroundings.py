"""What a job finds around it: its Python, its variables, its packages and its cards, the same at every level."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from computepool.agent import gpus, jobside, worker
from computepool.agent.sandbox.base import OUTPUTS, Limits, Policy, Sandbox
from computepool.agent.sandbox.runtime import Runtime, Wish
from computepool.agent.sandbox.tree import SITE
from computepool.protocol import values

#: Where a job finds its packages, where the level has mounts.
PACKAGES = "/opt/packages"
_WORKER = "computepool_worker.py"

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def prepare_runtime(cache_dir: Path, *, add: Sequence[str] = ()) -> Runtime:
    """The jobs' root file system; `add`: what the owner wants in it besides."""
    return Runtime.prepare(cache_dir, _packages(cache_dir), add=add)


def runtime_wish(cache_dir: Path) -> Wish:
    """What a runtime that was made elsewhere must have in common with this agent."""
    return Wish.of(_packages(cache_dir), ())


def _packages(cache_dir: Path) -> dict[str, Path]:
    """What the jobs' Python has beyond its own: cloudpickle, the worker and the part of `computepool` that runs inside."""
    return {
        "cloudpickle": _package("cloudpickle"),
        "computepool": _inside_package(cache_dir),
        _WORKER: Path(worker.__file__),
    }


class Surroundings:
    def __init__(self, sandbox: Sandbox, runtime: Runtime | None, cards: Sequence[gpus.Card]) -> None:
        self.sandbox = sandbox
        self.cards = tuple(cards)
        self._runtime = runtime

    @property
    def worker_script(self) -> Path:
        if self._runtime is None:
            return Path(worker.__file__)
        return self._runtime.path / SITE / _WORKER

    def policy(
        self,
        workdir: Path,
        *,
        limits: Limits,
        env: Mapping[str, str],
        packages: Path | None = None,
        cards: Sequence[int] = (),
        fds: Mapping[int, int] | None = None,
    ) -> Policy:
        used = [self.cards[index] for index in cards]
        mounts = {} if packages is None else {packages: PACKAGES}
        plain = Policy(mounts=mounts)
        variables = {
            **(gpus.visible_env(used) if self.cards else {}),
            "COMPUTEPOOL_OUTPUTS": self.sandbox.inside(workdir / OUTPUTS, workdir=workdir, policy=plain),
            "COMPUTEPOOL_CORES": f"{limits.cpus:g}",
            "COMPUTEPOOL_RAM_MB": str(limits.memory_mb),
            **env,
        }
        if packages is not None:
            inside = self.sandbox.inside(packages, workdir=workdir, policy=plain)
            variables["PYTHONPATH"] = ":".join(filter(None, (inside, env.get("PYTHONPATH"))))
        nodes = dict.fromkeys(node for card in used for node in card.nodes)
        return Policy(mounts=mounts, env=variables, fds=fds or {}, gpus=tuple(nodes))


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{name} is not installed", name=name)
    return Path(spec.origin).parent


def _inside_package(cache_dir: Path) -> Path:
    """A folder that is the package `computepool` as jobs see it: `progress()` and the codec of values."""
    sources = {"__init__.py": Path(jobside.__file__), "protocol/values.py": Path(values.__file__)}
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources.values())).hexdigest()[:16]
    final = cache_dir / f"jobside-{digest}" / "computepool"
    if not final.is_dir():
        building = final.with_name(".building")
        shutil.rmtree(building, ignore_errors=True)
        (building / "protocol").mkdir(parents=True)
        (building / "protocol" / "__init__.py").touch()
        for name, source in sources.items():
            shutil.copyfile(source, building / name)
        building.rename(final)
    return final
