"""Starts warm workers, keeps idle ones for a while, and ends them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Collection
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TypeAlias

from computepool.agent.context import Node
from computepool.agent.execution.attempts import StagedVolume
from computepool.agent.execution.job_environment import JobEnvironment
from computepool.agent.execution.specs import WorkerKey
from computepool.agent.execution.staging import place_inputs
from computepool.agent.network.egress import EgressProxy
from computepool.agent.network.gang_link import GangLink
from computepool.agent.packages.environments import Note
from computepool.agent.packages.provisions import Provision, Provisions
from computepool.agent.sandbox.base import Status
from computepool.agent.storage.artifacts import ArtifactCache
from computepool.agent.storage.folders import WorkFolders
from computepool.agent.workers.worker import SECRETS_VARIABLE
from computepool.agent.workers.workers import OUTPUT_FILE_MAX, WorkerHandle, channel_pair, output_file

_CHANNEL_FD = 3
#: Creates the volumes of a job in the work folder of its worker.
Stage: TypeAlias = Callable[[Path], Awaitable[tuple[StagedVolume, ...]]]


def _secret_names(key: WorkerKey) -> dict[str, str]:
    """So that the worker masks secrets in tracebacks, before it cuts long ones."""
    return {SECRETS_VARIABLE: ",".join(name for name, _ in key.secrets)} if key.secrets else {}


@dataclass(eq=False)
class WorkerPool:
    node: Node
    job_environment: JobEnvironment
    provisions: Provisions
    _: KW_ONLY
    cache: ArtifactCache
    folders: WorkFolders

    def __post_init__(self) -> None:
        self._idle: dict[WorkerKey, list[WorkerHandle]] = {}
        self._all: dict[WorkerHandle, Provision] = {}
        self._in_use: set[WorkerHandle] = set()
        self._closed = asyncio.Event()  #: set whenever a worker has ended

    def __len__(self) -> int:
        return len(self._all)

    async def take(
        self,
        key: WorkerKey,
        cpu_ids: tuple[int, ...] = (),
        *,
        note: Note | None = None,
        gang: GangLink | None = None,
        stage: Stage | None = None,
    ) -> WorkerHandle:
        """A worker for `key`, warm if there is one. The caller keeps it until `give_back`. `note`: receives progress."""
        idle = self._idle.get(key, [])
        worker = idle.pop() if idle else await self._start(key, cpu_ids, note=note, gang=gang, stage=stage)
        self._in_use.add(worker)
        if worker.proxy is not None:
            worker.proxy.resume()
        return worker

    def warm_ids(self, key: WorkerKey) -> tuple[int, ...]:
        """The CPUs of the warm worker that `take` would return; empty if there is none."""
        idle = self._idle.get(key)
        return idle[-1].cpu_ids if idle else ()

    def give_back(self, worker: WorkerHandle) -> None:
        """Keep it for the next call if it is idle, healthy and below its limits."""
        self._in_use.discard(worker)
        if not worker.alive:
            self._clean_up(worker)
        elif not worker.takes_calls or worker.sent or self.is_expired(worker) or worker.key.only_for:
            worker.kill(Status.CANCELLED)
        else:
            worker.idle_since = self.node.clock.steady()
            if worker.proxy is not None:
                worker.proxy.pause()
            self._idle.setdefault(worker.key, []).append(worker)

    def workers_on(self, card: int) -> int:
        return sum(card in worker.key.cards for worker in self._all)

    async def leave_cards(self, cards: Collection[int], *, but: WorkerKey | None) -> None:
        """End the idle workers that hold memory of these cards, except those of one key, and wait until they are gone."""
        idle = [worker for workers in self._idle.values() for worker in workers]
        leaving = [worker for worker in idle if worker.key != but and not set(cards).isdisjoint(worker.key.cards)]
        for worker in leaving:
            self._retire(worker)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.node.limits.worker_leaves_card_s):
                while any(worker.alive for worker in leaving):
                    self._closed.clear()
                    await self._closed.wait()

    def is_expired(self, worker: WorkerHandle) -> bool:
        return (
            bool(worker.key.only_for and worker.served)
            or worker.served >= self.node.limits.worker_jobs_max
            or len(worker.functions) >= self.node.limits.worker_functions_max
            or worker.output_size > OUTPUT_FILE_MAX
        )

    def patrol(self) -> None:
        """Enforce limits on all workers, and end those that were idle for too long."""
        oldest_allowed = self.node.clock.steady() - self.node.limits.worker_idle_s
        for worker in list(self._all):
            worker.patrol(self.node.limits.output_bytes_max + OUTPUT_FILE_MAX)
        for workers in self._idle.values():
            for worker in [worker for worker in workers if worker.idle_since < oldest_allowed]:
                self._retire(worker)

    def retire_idle(self) -> None:
        """End the workers that no job uses: the next ones start in the environments that are offered now."""
        for workers in list(self._idle.values()):
            for worker in list(workers):
                self._retire(worker)

    def close(self) -> None:
        for worker in list(self._all):
            worker.close()
            self._clean_up(worker)

    async def _start(
        self, key: WorkerKey, cpu_ids: tuple[int, ...], *, note: Note | None, gang: GangLink | None, stage: Stage | None
    ) -> WorkerHandle:
        self._evict_idle()
        provision = await self.provisions.acquire(key.software, note=note)
        workdir = self.folders.make("worker", key.limits.disk_mb)
        proxy = None
        try:
            await place_inputs(self.cache, key.inputs, workdir)
            proxy = await self.job_environment.open_network(key.net, label=f"a worker of {key.account}")
            if gang is not None:
                await gang.ready()
            volumes = () if stage is None else await stage(workdir)
            worker = self._spawn(key, workdir, provision, proxy=proxy, cpu_ids=cpu_ids, gang=gang, volumes=volumes)
        except BaseException:
            if proxy is not None:
                proxy.close()
            self.provisions.release(provision)
            self.folders.remove(workdir)
            raise
        self._all[worker] = provision
        if gang is not None:
            try:
                await gang.attach()
            except BaseException:
                worker.kill(Status.CANCELLED)
                raise
        return worker

    def _spawn(
        self,
        key: WorkerKey,
        workdir: Path,
        provision: Provision,
        *,
        proxy: EgressProxy | None,
        cpu_ids: tuple[int, ...],
        gang: GangLink | None,
        volumes: tuple[StagedVolume, ...],
    ) -> WorkerHandle:
        channel, worker_end = channel_pair()
        files = output_file(self.folders.parent), output_file(self.folders.parent)
        job_environment, interpreter, image = self.job_environment, provision.interpreter, provision.image
        try:
            policy = job_environment.policy(
                workdir,
                limits=key.limits,
                env=job_environment.worker_env(dict(key.env), interpreter, image)
                | dict(key.secrets)
                | _secret_names(key),
                packages=provision.packages,
                interpreter=interpreter,
                offer=provision.offer,
                cards=key.cards,
                fds={_CHANNEL_FD: worker_end.fileno()},
                proxy=proxy,
                cpu_ids=cpu_ids,
                leased=True,
                gang=gang,
                image=None if image is None else image.root(),
                volumes=volumes,
            )
            argv = [*job_environment.worker_argv(interpreter, offer=provision.offer, image=image), str(_CHANNEL_FD)]
            process = job_environment.sandbox.spawn(
                job_environment.command(argv, workdir=workdir, policy=policy, proxy=proxy),
                workdir=workdir,
                limits=key.limits,
                policy=policy,
                stdout=files[0],
                stderr=files[1],
            )
        except BaseException:
            channel.close()
            worker_end.close()
            for fd in files:
                os.close(fd)
            raise
        return WorkerHandle(
            process=process,
            key=key,
            channel=channel,
            worker_end=worker_end,
            files=files,
            workdir=workdir,
            proxy=proxy,
            clock=self.node.clock,
            on_closed=self._on_closed,
        )

    def _evict_idle(self) -> None:
        """End the longest idle worker if there are too many. Busy ones stay: the hub reserved room for them."""
        if len(self._all) < self.node.limits.workers_max:
            return
        idle = [worker for workers in self._idle.values() for worker in workers]
        if idle:
            self._retire(min(idle, key=lambda worker: worker.idle_since))

    def _retire(self, worker: WorkerHandle) -> None:
        with contextlib.suppress(ValueError):
            self._idle[worker.key].remove(worker)
        worker.kill(Status.CANCELLED)

    def _on_closed(self, worker: WorkerHandle) -> None:
        self._closed.set()
        with contextlib.suppress(ValueError):
            self._idle.get(worker.key, []).remove(worker)
        # While a lane has it, files of answered calls may still be read from its folder.
        if worker not in self._in_use:
            self._clean_up(worker)

    def _clean_up(self, worker: WorkerHandle) -> None:
        if worker not in self._all:
            return
        self.provisions.release(self._all.pop(worker))
        self._idle = {key: workers for key, workers in self._idle.items() if workers}
        self.folders.remove(worker.workdir)
