"""A pool of real processes: hubs and agents that tests start, freeze, kill -9 and start again.

Each is an operating system process that runs the production code on the loopback interface. They are forked from a server
that has imported everything once, because starting Python takes longer than most tests. For measurements, `fresh=True`
starts Python anyway. Nothing outlives the process that started it.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import functools
import importlib
import json
import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self
from urllib.error import URLError
from urllib.request import urlopen

from computepool.agent import main as agent_main
from computepool.agent.config import AgentConfig, AgentLimits
from computepool.agent.sandbox.scratch import remove_tree
from computepool.hub import main as hub_main
from computepool.hub.db import crashpoints
from computepool.hub.main import Bootstrap
from computepool.hub.settings import Settings
from computepool.sdk.pool import Pool, connect
from computepool.testing import databases
from computepool.testing.waiting import wait_until

#: What takes a minute in production takes seconds here. Leases are longer, because a busy machine would lose them; a test
#: that waits for the end of one sets its length.
FAST_HUB: Mapping[str, float | str] = {
    "lease_min_s": 20,
    "interval_min_s": 0.5,
    "sweep_s": 0.3,
    "boot_grace_s": 2,
    "self_fence_s": 0.5,
    "backoff_base_s": 0.1,
    "backoff_max_s": 0.5,
    "resync_s": 1,
    "verify": "none",
    "enrolments_per_day": 10_000,
    "newcomer_jobs": 0,
    "exposure": 0,
    "explore_share": 0,
    "node_faults_max": 1_000,  # tests kill a job's nodes more often than production would tolerate
    "breaker_faults": 1_000,  # and a node's jobs
}
FAST_AGENT = AgentLimits(retry_base_s=0.05, retry_max_s=0.5, connect_timeout_s=2, request_timeout_s=5, poll_slack_s=2)
READY_S = 90.0
_SPAWN = multiprocessing.get_context("spawn")
_FORKSERVER = multiprocessing.get_context("forkserver")
_FORKSERVER.set_forkserver_preload(["computepool.testing.processes", "pytest", "computepool.testing.warm"])


def free_port() -> int:
    """A port that the system assigns to nobody else for a minute, because a connection has just been closed there."""
    with socket.socket() as server, socket.socket() as client:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        client.connect(server.getsockname())
        server.accept()[0].close()
        return int(server.getsockname()[1])


@functools.cache
def shared_cache() -> Path:
    """A cache for all agents of this process: copying the jobs' Python takes each more than a second."""
    folder = Path(tempfile.mkdtemp(prefix="computepool-cache-", dir="/tmp"))
    folder.chmod(0o755)
    atexit.register(remove_tree, folder)
    return folder


class RealProcess:
    """A process that can be started again after its end, with the same name, folder and log."""

    def __init__(self, name: str, log: Path, *, fresh: bool) -> None:
        self.name = name
        self.log_path = log
        self._make: type[BaseProcess] = _SPAWN.Process if fresh else _FORKSERVER.Process
        self._process: BaseProcess | None = None

    def _launch(self, target: Callable[..., None], *arguments: Any) -> None:
        if self.alive:
            raise RuntimeError(f"{self.name} is already running")
        self._process = self._make(
            target=_enter, args=(str(self.log_path), target, *arguments), name=self.name, daemon=True
        )
        self._process.start()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    @property
    def pid(self) -> int:
        if self._process is None or self._process.pid is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal that ended it."""
        return None if self._process is None else self._process.exitcode

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self.alive:
            self.signal(signal.SIGKILL)
        self.wait(30)

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def stop(self, timeout_s: float = 15) -> int:
        """Stop it by SIGTERM, and return its exit code. If it does not end, kills it and raises TimeoutError."""
        if self.alive:
            self.signal(signal.SIGTERM)
        try:
            return self.wait(timeout_s)
        except TimeoutError:
            self.kill()
            raise

    def wait(self, timeout_s: float) -> int:
        if self._process is not None:
            self._process.join(timeout_s)
            if self._process.exitcode is None:
                raise TimeoutError(f"{self.name} did not end within {timeout_s:g} s:\n{self.log[-4000:]}")
        return self.exit_code or 0

    def end(self) -> None:
        """End it in any state."""
        if self.alive:
            self.thaw()
            with contextlib.suppress(TimeoutError):
                self.stop(10)


def _variables(settings: Mapping[str, str | float]) -> dict[str, str]:
    return {f"COMPUTEPOOL_{key.upper()}": str(value) for key, value in settings.items()}


class HubProcess(RealProcess):
    def __init__(
        self,
        folder: Path,
        *,
        name: str = "hub",
        first: Bootstrap | None = None,
        database_url: str = "",
        fresh: bool = False,
        **settings: str | float,
    ) -> None:
        """`first` is the bootstrap of another hub of the same database."""
        super().__init__(name, folder / f"{name}.log", fresh=fresh)
        self.folder = folder
        self.port = free_port()
        self._env = _variables(settings)
        self._env |= {"COMPUTEPOOL_DATA_DIR": str(folder / "hub"), "COMPUTEPOOL_PORT": str(self.port)}
        if database_url:
            self._env["DATABASE_URL"] = database_url
        self.settings = Settings(data_dir=folder / "hub", DATABASE_URL=database_url)
        databases.place(self.settings)
        self.first = first or hub_main.bootstrap(self.settings)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, *, ready: bool = True, crash_at: str = "", **changes: str | float) -> Self:
        """Start on the same port and data as before, with changed settings. For `crash_at`, see hub/db/crashpoints.py."""
        self._env |= _variables(changes)
        self._launch(_serve, self._env | {"COMPUTEPOOL_CRASH_AT": crash_at})
        if ready:
            self.wait_ready()
        return self

    def wait_ready(self) -> None:
        wait_until(lambda: self._serves() or not self.alive, READY_S, f"{self.name} serves {self.url}")
        if not self.alive:
            raise RuntimeError(f"{self.name} ended with {self.exit_code}:\n{self.log[-4000:]}")

    def _serves(self) -> bool:
        try:
            with urlopen(f"{self.url}/healthz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def restart(self) -> None:
        """kill -9, and start again."""
        self.kill()
        self.start()


class AgentProcess(RealProcess):
    def __init__(self, config: AgentConfig, *, fresh: bool = False) -> None:
        config.data_dir.mkdir(parents=True, exist_ok=True)
        super().__init__(config.name, config.data_dir.with_suffix(".log"), fresh=fresh)
        self.config = config

    @property
    def node_id(self) -> str:
        return str(json.loads(self.config.identity_path.read_text())["node_id"])

    @property
    def enrolled(self) -> bool:
        return self.config.identity_path.exists()

    def start(self, **changes: Any) -> Self:
        """Start with changed fields of the configuration."""
        self.config = replace(self.config, **changes)
        self._launch(agent_main.run, self.config)
        return self

    def restart(self) -> None:
        self.kill()
        self.start()


class RealPool:
    """Hubs and agents with one database, in a folder of their own. Everything ends with the `with` block."""

    def __init__(
        self, *, database_url: str = "", cache: Path | None = None, fresh: bool = False, **settings: str | float
    ) -> None:
        """`cache` is a folder where agents find what others built, by default that of all pools of this process."""
        # Not pytest's folder: as root, jobs run as other users, who must be able to reach their folders.
        self.folder = Path(tempfile.mkdtemp(prefix="computepool-", dir="/tmp"))
        self.folder.chmod(0o755)
        self._database_url = database_url
        self._cache = cache or shared_cache()
        self._fresh = fresh
        # Nodes that measure their hardware would disturb tests that measure time.
        self._settings = {**FAST_HUB, "measure_every_s": 0, "log_level": "warning", **settings}
        self.hubs: list[HubProcess] = []
        self.agents: list[AgentProcess] = []
        self._clients: list[Pool] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for client in self._clients:
            client.transport.closed.set()
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            for client in self._clients:
                stack.callback(client.close)
            for process in self.processes:
                stack.callback(process.end)

    @property
    def processes(self) -> list[RealProcess]:
        return [*self.hubs, *self.agents]

    @property
    def admin_key(self) -> str:
        return self.hubs[0].first.admin_key

    def add_hub(self) -> HubProcess:
        """A hub that is not started yet. The first one sets up the database; all share the folder of artifacts."""
        hub = HubProcess(
            self.folder,
            name=f"hub-{len(self.hubs) + 1}",
            first=self.hubs[0].first if self.hubs else None,
            database_url=self._database_url,
            fresh=self._fresh,
            **self._settings,
        )
        self.hubs.append(hub)
        return hub

    def start_hub(self) -> HubProcess:
        return self.add_hub().start()

    def start_agent(
        self,
        *,
        url: str = "",
        owner: Pool | None = None,
        online: bool = True,
        limits: AgentLimits = FAST_AGENT,
        **config: Any,
    ) -> AgentProcess:
        """A node of the owner (by default the admin), at the given address or at all hubs. Returns when it is online."""
        name = config.pop("name", f"node-{len(self.agents) + 1}")
        code = (owner or self.client()).nodes.code().code
        filled = AgentConfig(
            hub_url=url or ",".join(hub.url for hub in self.hubs),
            data_dir=self.folder / name,
            name=name,
            code=code,
            limits=limits,
            **{"cores": 2, "sandbox": "process", **config},
        )
        agent = AgentProcess(filled, fresh=self._fresh)
        filled.cache_dir.symlink_to(self._cache)
        self.agents.append(agent)
        agent.start()
        if online:
            self.wait_online(agent)
        return agent

    def wait_online(self, agent: AgentProcess) -> None:
        client = self.client()
        wait_until(
            lambda: not agent.alive or (agent.enrolled and client.nodes.get(agent.node_id).online),
            READY_S,
            f"{agent.name} is online",
        )
        if not agent.alive:
            raise RuntimeError(f"{agent.name} ended with {agent.exit_code}:\n{agent.log[-4000:]}")

    def client(self, url: str = "", *, key: str = "") -> Pool:
        """A client that is signed in, by default as the admin at the first hub."""
        client = connect(url or self.hubs[0].url, key or self.admin_key, retry_for=60)
        self._clients.append(client)
        return client

    def account(self, name: str, *roles: str) -> Pool:
        admin = self.client()
        made = admin.accounts.create(name, roles=roles)
        return self.client(key=admin.keys.create("test", account_id=made.id).key)

    def shared_folder(self, name: str) -> Path:
        """A new folder in which jobs of every user may write."""
        folder = self.folder / name
        folder.mkdir()
        folder.chmod(0o777)
        return folder

    def broken_rules(self) -> list[str]:
        return hub_main.check(self.hubs[0].settings)

    def logs(self) -> str:
        """The end of every process's log, for a failing test."""
        return "\n".join(f"--- {one.name}\n{one.log[-3000:]}" for one in self.processes)


def _enter(log: str, target: Callable[..., None], *arguments: Any) -> None:
    """The new process begins here."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.close(handle)
    faulthandler.enable()
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()
    target(*arguments)


def _end_with_parent() -> None:
    """A killed test run must leave no hubs and agents behind."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _serve(env: dict[str, str]) -> None:
    os.environ.update(env)
    importlib.reload(crashpoints)  # it read the environment in the server that this process was forked from
    hub_main.serve(Settings())
