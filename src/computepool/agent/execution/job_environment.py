"""The environment of a job: its Python, its variables, its packages and its GPUs, the same at every level."""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path

import cloudpickle

from computepool.agent.execution import job_runtime
from computepool.agent.execution.attempts import StagedVolume
from computepool.agent.execution.job_calls import CALLS
from computepool.agent.hardware import driver, gpus
from computepool.agent.hardware.cards import DetectedCard
from computepool.agent.images.image import Image
from computepool.agent.images.roots import make_mount_points
from computepool.agent.network import egress_shim
from computepool.agent.network.egress import SOCKET, VARIABLES, Egress, EgressProxy
from computepool.agent.network.gang_link import HOSTS, GangLink
from computepool.agent.packages.interpreters import PYTHON, Interpreter
from computepool.agent.packages.offered import ReadyEnvironment
from computepool.agent.sandbox.base import OUTPUTS, ImageRoot, Limits, SandboxError, SandboxPolicy
from computepool.agent.sandbox.fence import Fence
from computepool.agent.sandbox.interior import atomic_folder, node_loader
from computepool.agent.sandbox.runtime.runtime import INSIDE, Runtime, RuntimeRecipe
from computepool.agent.sandbox.runtime.tree import SITE
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.storage.checkpoint_folder import CHECKPOINT, RESTORED
from computepool.agent.workers import worker
from computepool.core.isolation import Level
from computepool.core.network import Target
from computepool.protocol.jobs.scripts import PYTHON as SCRIPT_PYTHON
from computepool.protocol.volumes.volumes import variable_of

#: Mount points in the sandbox: a job's packages, and the socket of the agent's proxy.
PACKAGES = "/opt/packages"
NETWORK = "/run/computepool"
#: What the SDK needs in an offered environment, if its Python is not the agent's version.
OFFER_SITE = "/opt/site"
#: The default number of threads: of OpenMP, of the numeric libraries that read its variable (MKL, OpenBLAS, NumExpr), and
#: of Python's own os.cpu_count() from 3.13.
THREADS = ("OMP_NUM_THREADS", "PYTHON_CPU_COUNT")
_WORKER = "computepool_worker.py"
_SHIM = "computepool_egress_shim.py"


def prepare_runtime(cache_dir: Path, *, add: Sequence[str] = ()) -> Runtime:
    """The jobs' root file system. `add`: what the owner includes besides."""
    return Runtime.prepare(cache_dir, _packages(cache_dir), add=add)


def runtime_recipe(cache_dir: Path) -> RuntimeRecipe:
    """The properties that an imported runtime must share with this agent."""
    return RuntimeRecipe.of(_packages(cache_dir), ())


def _packages(cache_dir: Path) -> dict[str, Path]:
    """The packages of the jobs' Python besides the standard library."""
    return {
        "cloudpickle": Path(cloudpickle.__file__).parent,
        "computepool": _inside_package(cache_dir),
        _WORKER: Path(worker.__file__),
        _SHIM: Path(egress_shim.__file__),
    }


@dataclass(eq=False)
class JobEnvironment:
    sandbox: Sandbox
    runtime: Runtime
    cards: Sequence[DetectedCard]
    _: KW_ONLY
    egress: Egress | None = None
    fence: Fence | None = None

    def worker_argv(
        self, interpreter: Interpreter | None, *, offer: ReadyEnvironment | None = None, image: Image | None = None
    ) -> list[str | Path]:
        """With the full path of Python, whatever PATH the job sets. The image's own Python, if it has the version."""
        if offer is not None and offer.environment.python is not None:
            return [offer.environment.python, "-s", offer.site / _WORKER]
        if _is_images(interpreter, image):
            return [f"python{PYTHON}", "-s", self.runtime.path / SITE / _WORKER]
        if interpreter is None:
            return [self.runtime.python, "-s", self.runtime.path / SITE / _WORKER]
        return [interpreter.path, "-s", interpreter.site / _WORKER]

    async def open_network(self, targets: Sequence[Target], *, label: str) -> EgressProxy | None:
        """A proxy to the hosts that a job listed; None if it listed none.

        At level `process` a job has the host's network, and a proxy could not restrict it.
        """
        if not targets or self.sandbox.level is Level.PROCESS:
            return None
        if self.egress is None:
            raise SandboxError("this node gives jobs no network access")
        return await self.egress.open(targets, label=label)

    def worker_env(
        self, env: Mapping[str, str], interpreter: Interpreter | None, image: Image | None
    ) -> dict[str, str]:
        """The image's own Python finds the modules that the worker needs where the node's Python has them."""
        if image is None or not _is_images(interpreter, image):
            return dict(env)
        found = env.get("PYTHONPATH") or image.config.run.variables.get("PYTHONPATH")
        return {**env, "PYTHONPATH": ":".join(filter(None, (found, f"{INSIDE}/{SITE}")))}

    def script_argv(self, argv: Sequence[str | Path], image: Image) -> list[str | Path]:
        """A script for Python runs in an image without one, too: by the node's."""
        if argv[0] == SCRIPT_PYTHON and not image.has(SCRIPT_PYTHON):
            return [self.runtime.python, *argv[1:]]
        return list(argv)

    def command(
        self, argv: Sequence[str | Path], *, workdir: Path, policy: SandboxPolicy, proxy: EgressProxy | None
    ) -> list[str]:
        """The command that runs `argv`, behind the egress shim if there is a proxy. A Path is one of this machine."""
        if proxy is not None:
            shim = (self.runtime.python, "-I", "-S", self.runtime.path / SITE / _SHIM, proxy.folder / SOCKET)
            argv = (*shim, *argv)
        inside = partial(self.sandbox.inside, workdir=workdir, policy=policy)
        loader = () if policy.image is None else node_loader(self.runtime)
        command: list[str] = []
        for word in argv:
            command += [
                *(loader if word == self.runtime.python else ()),
                inside(word) if isinstance(word, Path) else word,
            ]
        return command

    def policy(
        self,
        workdir: Path,
        *,
        limits: Limits,
        env: Mapping[str, str],
        packages: Path | None = None,
        interpreter: Interpreter | None = None,
        offer: ReadyEnvironment | None = None,
        cards: Sequence[int] = (),
        fds: Mapping[int, int] | None = None,
        proxy: EgressProxy | None = None,
        cpu_ids: tuple[int, ...] = (),
        saves: bool = True,
        leased: bool = False,
        gang: GangLink | None = None,
        image: ImageRoot | None = None,
        volumes: Sequence[StagedVolume] = (),
    ) -> SandboxPolicy:
        """`saves`: the job may leave checkpoints. `leased`: it ends with the node's lease."""
        used = [self.cards[index] for index in cards]
        mounts = {} if packages is None else {packages: PACKAGES}
        mounts |= {} if interpreter is None else {interpreter.home: interpreter.inside}
        mounts |= {} if proxy is None else {proxy.folder: NETWORK}
        mounts |= {} if gang is None else {gang.hosts: HOSTS}
        mounts |= self._offer_mounts(offer)
        plain = SandboxPolicy(mounts=mounts, image=image, volumes={one.folder: one.place for one in volumes})
        python = self._python_env(interpreter, workdir, plain)
        variables = {
            **({} if proxy is None else VARIABLES),
            **(gpus.visible_env(used) if self.cards else {}),
            **_folders_env(self.sandbox.inside(workdir, workdir=workdir, policy=plain), saves=saves),
            **_limits_env(limits),
            **python,
            **self._volume_env(volumes, workdir, plain),
            **env,
            **({} if gang is None else gang.env()),
        }
        offered = self._offer_env(offer, env, partial(self.sandbox.inside, workdir=workdir, policy=plain))
        variables |= offered
        if packages is not None:
            inside = self.sandbox.inside(packages, workdir=workdir, policy=plain)
            variables["PYTHONPATH"] = ":".join(filter(None, (inside, env.get("PYTHONPATH"))))
        if used and self.sandbox.level is not Level.PROCESS:
            mounts |= driver.mounts(used, sysfs=self.sandbox.level is not Level.GVISOR)  # gVisor has a sysfs of its own
            own = {**self.runtime.env(INSIDE), **python, **offered}.get("LD_LIBRARY_PATH")
            variables |= driver.library_path(used, own, env.get("LD_LIBRARY_PATH"))
        if image is not None:
            make_mount_points(image.path, mounts | {one.folder: one.place[0] for one in volumes})
        return replace(
            plain,  # Its mounts now include those of the cards.
            env=variables,
            fds=fds or {},
            gpus=tuple(dict.fromkeys(node for card in used for node in card.nodes)),
            has_proxy=proxy is not None,
            hold=None if gang is None else gang.hold,
            image=image,
            cpu_ids=cpu_ids,
            fence=self.fence.fd if leased and self.fence is not None else None,
        )

    def _volume_env(self, volumes: Sequence[StagedVolume], workdir: Path, policy: SandboxPolicy) -> dict[str, str]:
        """Where each volume is."""
        paths = ((one, self.sandbox.inside(one.folder, workdir=workdir, policy=policy)) for one in volumes)
        return {variable_of(one.mount.volume): path for one, path in paths}

    def _offer_mounts(self, offer: ReadyEnvironment | None) -> dict[Path, str]:
        if offer is None:
            return {}
        own = self.runtime.path / SITE
        return offer.mounts | ({} if offer.site == own else {offer.site: OFFER_SITE})

    def _offer_env(
        self, offer: ReadyEnvironment | None, env: Mapping[str, str], inside: Callable[[Path], str]
    ) -> dict[str, str]:
        """Variables for an environment of the owner's. Its own modules come before those that the SDK needs."""
        if offer is None:
            return {}
        found = offer.environment
        listed = filter(None, (env.get("PYTHONPATH"), *([] if found.python else map(str, found.site))))
        if found.python is None:
            return {"PYTHONPATH": ":".join(listed)}
        own = self.runtime.env(inside(self.runtime.path))
        set_by_job = {name: env[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in env}
        return {"PYTHONPATH": ":".join((*listed, inside(offer.site)))} | found.env(own | set_by_job)

    def _python_env(self, interpreter: Interpreter | None, workdir: Path, policy: SandboxPolicy) -> dict[str, str]:
        """Variables for a Python other than the agent's own; empty for the agent's."""
        if interpreter is None:
            return {}
        own = self.sandbox.inside(self.runtime.path, workdir=workdir, policy=policy)
        home = self.sandbox.inside(interpreter.home, workdir=workdir, policy=policy)
        return interpreter.env(home, self.runtime.env(own))


def _is_images(interpreter: Interpreter | None, image: Image | None) -> bool:
    """Whether a worker runs on the image's own Python: it has the version, and no other one is needed."""
    return image is not None and interpreter is None and image.has(f"python{PYTHON}")


def _limits_env(limits: Limits) -> dict[str, str]:
    return {
        "COMPUTEPOOL_CORES": f"{limits.cpus:g}",
        "COMPUTEPOOL_RAM_MB": str(limits.memory_mb),
        # By default, libraries start a thread for each processor of the machine.
        **dict.fromkeys(THREADS, str(max(1, math.ceil(limits.cpus)))),
    }


def _folders_env(home: str, *, saves: bool) -> dict[str, str]:
    """Where the job finds its folders; `home` is its work folder."""
    checkpoints = {"COMPUTEPOOL_CHECKPOINT": f"{home}/{CHECKPOINT}", "COMPUTEPOOL_RESTORED": f"{home}/{RESTORED}"}
    own = {"COMPUTEPOOL_OUTPUTS": f"{home}/{OUTPUTS}", "COMPUTEPOOL_CALLS": f"{home}/{CALLS}"}
    return {**own, **(checkpoints if saves else {})}


def _inside_package(cache_dir: Path) -> Path:
    """The package `computepool` as jobs see it."""
    package = Path(job_runtime.__file__).parents[2]
    sources = {"__init__.py": Path(job_runtime.__file__), **{name: package / name for name in job_runtime.MODULES}}
    text = b"".join(name.encode() + path.read_bytes() for name, path in sources.items())
    final = cache_dir / f"job-runtime-{hashlib.sha256(text).hexdigest()[:16]}" / "computepool"
    with atomic_folder(final) as package_inside:
        if package_inside is not None:
            for name, source in sources.items():
                (package_inside / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, package_inside / name)
            # The __init__.py files of the whole package would load modules that jobs do not have.
            for folder in filter(Path.is_dir, package_inside.rglob("*")):
                (folder / "__init__.py").touch()
    return final
