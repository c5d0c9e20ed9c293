"""The agent: creates its parts, runs them, and stops them in the right order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from computepool.agent.config import AgentConfig
from computepool.agent.context import Node
from computepool.agent.execution.attempts import Attempt, AttemptTable
from computepool.agent.execution.executor import Executor
from computepool.agent.execution.job_calls import CallRelay
from computepool.agent.execution.job_environment import JobEnvironment
from computepool.agent.execution.job_logs import JobLogs, OutputSink
from computepool.agent.execution.job_secrets import SecretFetcher
from computepool.agent.execution.lanes import LaneCpus
from computepool.agent.execution.logs import LogShipper
from computepool.agent.execution.processes import ProcessRunner
from computepool.agent.hardware.benchmark import Benchmark
from computepool.agent.hardware.cards import DetectedCard
from computepool.agent.hardware.cpus import Cpus, lent_ids, usable_ids
from computepool.agent.hardware.nvml import GpuMeter
from computepool.agent.hub_link import departure
from computepool.agent.hub_link.admission import Gatekeeper
from computepool.agent.hub_link.identity import write_private
from computepool.agent.hub_link.keyring import Keyring
from computepool.agent.hub_link.outbox import Outbox
from computepool.agent.hub_link.poll_loop import NodeLoop
from computepool.agent.hub_link.reporter import Reporter
from computepool.agent.images.images import Images
from computepool.agent.network.egress import Egress
from computepool.agent.network.gang_lan import GangLan
from computepool.agent.network.gang_link import GangLinks
from computepool.agent.owner.control import CLEAR, ControlServer
from computepool.agent.owner.manifest import manifest
from computepool.agent.owner.owner_console import Watcher
from computepool.agent.owner.owner_rules import OwnerRules
from computepool.agent.packages.builder import Builder
from computepool.agent.packages.cached_folders import CachedFolders
from computepool.agent.packages.environments import Environments, find_uv
from computepool.agent.packages.offers import Offers
from computepool.agent.packages.package_index import PackageIndex
from computepool.agent.packages.provisions import Provisions
from computepool.agent.packages.pythons import Pythons
from computepool.agent.sandbox import volumes
from computepool.agent.sandbox.fence import Fence
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.scratch import remove_tree
from computepool.agent.storage.artifacts import ArtifactCache, Uploader
from computepool.agent.storage.cache_report import CacheReport
from computepool.agent.storage.checkpoints import CheckpointKeeper
from computepool.agent.storage.folders import WorkFolders
from computepool.agent.storage.job_volumes import VolumeKeeper
from computepool.agent.storage.result_delivery import ResultDelivery
from computepool.agent.storage.sweeper import Sweeper
from computepool.agent.workers.functions import FunctionRunner
from computepool.agent.workers.worker_pool import WorkerPool
from computepool.core.errors import ComputePoolError
from computepool.core.fleet.node_status import Contact, NodeStatus, node_status, rest_reason, status_sentence
from computepool.core.network import parse_networks
from computepool.core.resources import NodeState
from computepool.protocol.nodes.profile import Profile

_log = logging.getLogger(__name__)
#: Short, because the owner waits at a terminal.
_NAME_TIMEOUT_S = 2.0
#: Statuses that only the hub can determine.
_HUB_STATUSES = (NodeStatus.COOLING_OFF, NodeStatus.OWNER_ONLY, NodeStatus.FLOOR_ABOVE_PRICE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The sandbox and the hardware, inspected before the agent starts."""

    sandbox: Sandbox
    runtime: Runtime
    cards: tuple[DetectedCard, ...]
    profile: Profile


class Agent:
    def __init__(
        self, config: AgentConfig, node: Node, machine: Machine, *, stop: asyncio.Event, watcher: Watcher
    ) -> None:
        self._config, self._node, self._machine, self._stop, self._watcher = config, node, machine, stop, watcher
        self._started_at = node.clock.steady()
        self._owner_name = ""
        self._leaving = False  #: the owner asked to leave the pool after the last job
        # Folders of an agent that was killed; its jobs died with it.
        volumes.sweep(config.work_dir)
        for leftover in config.work_dir.glob("*"):
            remove_tree(leftover)
        self._sweeper = Sweeper()
        self._folders = WorkFolders(config.work_dir, self._sweeper, volumes.Volumes(config.cache_dir))
        self._egress = Egress(config.work_dir, limits=node.limits, private=parse_networks(config.net_private))
        self._fence = Fence()
        self._table = AttemptTable(remembered_max=node.limits.remembered_attempts_max)
        self._shipper = LogShipper(node)
        outbox = Outbox(config.outbox_dir, clock=node.clock, age_max_s=node.limits.outbox_age_max_s)
        self._reporter = Reporter(
            node, outbox, on_settled=self._table.settle, is_busy=lambda: self._executor.waiting > 0
        )
        self._job_environment = JobEnvironment(
            machine.sandbox,
            machine.runtime,
            machine.cards,
            egress=self._egress if config.network else None,
            fence=self._fence,
        )
        self._artifacts = ArtifactCache(config.cache_dir / "artifacts", node)
        self._provisions = self._make_provisions()
        self._pool = WorkerPool(
            node, self._job_environment, self._provisions, cache=self._artifacts, folders=self._folders
        )
        self._lane_cpus = self._make_lane_cpus()
        self._lan = GangLan(node.limits) if config.lan else None
        self._executor = self._make_executor()
        self.benchmark = Benchmark(node, self._job_environment, self._executor, work_dir=config.work_dir)
        self.result_delivery = ResultDelivery(node, config.data_dir)
        self._keyring = Keyring(node, config.identity_path)
        self.loop = self._make_loop()
        self._cache_report = CacheReport(config.cache_dir, self.loop.change_cached, gap_s=node.limits.cache_report_s)
        self._control = ControlServer(config.data_dir, self.command)

    def _make_provisions(self) -> Provisions:
        config, machine = self._config, self._machine
        uv = config.uv or find_uv()
        builder = Builder(self._job_environment, self._folders, self._egress)
        index = PackageIndex(uv, url=config.package_index, hosts=config.package_index_hosts)
        folder = config.cache_dir / "environments"
        environments = Environments(folder, builder, index, uv=uv, limits=config.limits)
        offered = machine.profile.fetches_python
        images = Images(
            config.cache_dir / "images",
            builder,
            self._artifacts,
            egress=self._egress,
            runtime=machine.runtime,
            limits=config.limits,
            registries=tuple(machine.profile.registries),
        )
        pythons = Pythons(config, builder, offered=offered, runtime=machine.runtime)
        self._offers = Offers(config, builder, runtime=machine.runtime, level=machine.sandbox.level)
        self._building_offers = partial(self._offers.run, environments.build, self._offer_environments)
        return Provisions(pythons, environments, offers=self._offers, images=images)

    def _make_lane_cpus(self) -> LaneCpus:
        config, owner = self._config, self._node.identity.owner
        cores = self._machine.profile.cores
        ids = lent_ids(usable_ids(), cores, seed=str(config.data_dir))

        def may_stretch(attempt: Attempt) -> bool:
            # Jobs of others are billed and compared by their time, so they get exactly what they requested.
            return attempt.grant.account_id == owner if config.elastic is None else config.elastic

        return LaneCpus(Cpus(ids, cores), may_stretch=may_stretch)

    def _make_executor(self) -> Executor:
        node, cache, sweeper = self._node, self._artifacts, self._sweeper
        uploader = Uploader(node)
        logs = JobLogs(self._shipper)
        keeper = CheckpointKeeper(node, cache=cache, uploader=uploader, logs=logs, sweeper=sweeper)
        relay = CallRelay(node, sweeper)
        sink = OutputSink(logs, keeper, relay)
        gangs = GangLinks(node, self._config.work_dir, self._lan)
        volume_keeper = VolumeKeeper(node, cache=cache, uploader=uploader, logs=logs, spool=self._config.work_dir)
        processes = ProcessRunner(
            node,
            self._job_environment,
            self._provisions,
            cache=cache,
            uploader=uploader,
            keeper=keeper,
            sink=sink,
            folders=self._folders,
            gangs=gangs,
            volumes=volume_keeper,
        )
        functions = FunctionRunner(
            node,
            self._pool,
            cache,
            uploader=uploader,
            keeper=keeper,
            sink=sink,
            sweeper=sweeper,
            gangs=gangs,
            volumes=volume_keeper,
        )
        return Executor(
            node,
            processes,
            functions,
            secrets=SecretFetcher(node),
            keeper=keeper,
            relay=relay,
            shipper=self._shipper,
            reporter=self._reporter,
            watcher=self._watcher,
            meter=GpuMeter(self._machine.cards),
            lane_cpus=self._lane_cpus,
            table=self._table,
        )

    def _make_loop(self) -> NodeLoop:
        config, machine = self._config, self._machine
        return NodeLoop(
            self._node,
            Gatekeeper(self._node.identity, machine.profile, OwnerRules(config.data_dir)),
            machine.profile,
            table=self._table,
            executor=self._executor,
            reporter=self._reporter,
            keyring=self._keyring,
            benchmark=self.benchmark,
            result_delivery=self.result_delivery,
            fence=self._fence,
            nearby=self._egress.nearby,
            watcher=self._watcher,
            paused=config.paused_path.exists(),
        )

    async def run(self) -> None:
        """Run until `stop` is set or the node is drained. Raises Unauthenticated if the hub has removed the node."""
        helpers = [
            asyncio.create_task(part.run())
            for part in (self._reporter, self._shipper, self.benchmark, self.result_delivery, self._cache_report)
        ]
        helpers.append(asyncio.create_task(self._building_offers()))
        await self._keyring.resume()
        await self._offer_environments()
        await self._node.client.test_speed()
        main = asyncio.create_task(self.loop.run())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await self._control.start()
            if self._lan is not None:
                await self._lan.start()
            done, _ = await asyncio.wait([main, stopping, *helpers], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopping}:
                task.result()
            if stopping in done:
                _log.info("stopping: giving back what has not started")
                self._watcher.show("Stopping: running jobs are given back and run elsewhere.")
                main.cancel()
            await self.loop.wind_down()
            if self._leaving:
                await departure.leave(self._node.client, self._config)
                self._watcher.show("Left the pool.")
        finally:
            await self._control.close()
            for task in (main, stopping, *helpers):
                task.cancel()
            await asyncio.gather(main, stopping, *helpers, return_exceptions=True)
            await self._executor.close()
            if self._lan is not None:
                self._lan.close()
            self._reporter.spill()
            self._machine.sandbox.close()
            self._fence.close()
            self._folders.close()
            self._sweeper.close()
            await self._node.client.close()

    async def _offer_environments(self) -> None:
        """Read the owner's list of environments, and tell the hub if what this node offers has changed."""
        if await self._offers.refresh():
            self.loop.change_profile({"environments": self._offers.models})
            self._pool.retire_idle()

    # ------------------------------------------------------------ control
    async def command(self, word: str) -> dict[str, Any]:
        if word == "rekey":
            return await self._rekey()
        if word == "environments":
            self._offers.retry()
            await self._offer_environments()
            return {"offered": [found.name for found in self._offers.models], "problems": self._offers.problems}
        if word.startswith(CLEAR):
            return await self._clear(word.removeprefix(CLEAR))
        try:
            if word == "pause":  # saved first, because a pause must survive a restart
                write_private(self._config.paused_path, b"")
                self.loop.set_local_state(NodeState.PAUSED)
            elif word == "resume":
                self._config.paused_path.unlink(missing_ok=True)
                self.loop.set_local_state(NodeState.ACTIVE)
            elif word == "drain":
                self.loop.set_local_state(NodeState.DRAINING)
            elif word in ("leave", "leave_now"):
                self._leave(now=word == "leave_now")
        except OSError as error:
            return {"error": f"The change could not be saved: {error}."}
        return self.status() if self._leaving else await self._status_with_name()

    async def _clear(self, kind: str) -> dict[str, Any]:
        """Remove what no job or warm worker uses; all of it if no kind is named."""
        kinds: dict[str, ArtifactCache | CachedFolders | Images] = {
            "inputs": self._artifacts,
            **self._provisions.caches,
        }
        for name, cache in kinds.items():
            if kind in ("cache", name):
                await cache.clear()
        await self._cache_report.check()
        return {"cleared": True}

    def _leave(self, *, now: bool) -> None:
        """Leave once the last job is reported; with `now`, at once, giving back running jobs."""
        self._leaving = True
        self.loop.set_local_state(NodeState.DRAINING)
        if now:
            self._stop.set()

    async def _rekey(self) -> dict[str, Any]:
        try:
            until_ms = await self._keyring.rekey()
        except ComputePoolError as error:
            return {"error": error.detail}
        except OSError as error:  # The key is saved before it is sent to the hub, so nothing has changed.
            return {"error": f"The new key could not be saved: {error}."}
        return {"node_id": self._node.identity.node_id, "old_accepted_until_ms": until_ms}

    async def _status_with_name(self) -> dict[str, Any]:
        """The status with the owner's name, which is fetched once from the hub."""
        if not self._owner_name and self._is_connected():
            with contextlib.suppress(ComputePoolError, TimeoutError):
                async with asyncio.timeout(_NAME_TIMEOUT_S):
                    self._owner_name = (await self._node.client.own_node()).owner_name
        return self.status()

    def status(self) -> dict[str, Any]:
        now = self._node.clock.steady()
        loop = self.loop
        contact, seen_now = loop.last_contact, self._node.clock.boot_time()
        return {
            "node_id": self._node.identity.node_id,
            "name": self._config.name,
            "owner": self._node.identity.owner,
            "owner_name": self._owner_name,
            "hub": self._node.client.url,
            "pid": os.getpid(),
            "state": self._status().label,
            "level": self._machine.sandbox.level.label,
            "network": self._config.network,
            "connected": self._is_connected(),
            "last_contact_s": None if contact is None else round(seen_now - contact, 1),
            "last_error": loop.last_error,
            "clock_offset_ms": self._node.client.offset_ms,
            "uptime_s": round(now - self._started_at, 1),
            "running": [
                {
                    "attempt_id": head.id,
                    **asdict(manifest(head.grant, head.spec)),
                    "cpu_ids": list(lane.cpu_ids),
                    "load": None if head.load is None else head.load.wire(now).model_dump(),
                    "ran_s": 0.0 if head.started_at is None else round(now - head.started_at, 1),
                    "progress": head.progress,
                }
                for lane, head in self._executor.lanes()
            ],
            "environments": {**dict.fromkeys((each.name for each in self._offers.models), ""), **self._offers.problems},
            "cpus": list(self._lane_cpus.cpus.lent),
            "cpus_free": list(self._lane_cpus.cpus.free),
            "waiting": self._executor.waiting,
            "unreported": self._reporter.waiting,
            "workers": len(self._pool),
            "result_deliveries": self.result_delivery.under_way,
            "hardware": "" if self.benchmark.view is None else self.benchmark.view.sentence,
            "why_idle": self._why_idle(),
        }

    def _is_connected(self) -> bool:
        contact = self.loop.last_contact
        return contact is not None and self._node.clock.boot_time() - contact < self.loop.lease.lease_ms / 1000

    def _status(self) -> NodeStatus:
        """The status as the hub shows it."""
        rest = rest_reason(self.loop.state, Contact(reachable=self._is_connected()), cooling=False)
        if rest is None and self.loop.hub_status in _HUB_STATUSES:
            return NodeStatus(self.loop.hub_status)
        return node_status(rest, banned=False, floor_met=True, jobs=len(self._executor.attempts))

    def _why_idle(self) -> str:
        loop = self.loop
        if self._executor.attempts:
            return ""
        if loop.last_contact is None:
            return f"The hub has not answered yet. {loop.last_error}".strip()
        if loop.last_error:
            return f"The hub cannot be reached: {loop.last_error}"
        if loop.state is not NodeState.ACTIVE:
            if loop.local_state is loop.state:
                return f"The node is {loop.state.value}. To resume: pool node resume"
            return f"The node was set to {loop.state.value} at the hub. To resume: pool node resume {self._config.name}"
        if (status := self._status()) in _HUB_STATUSES:
            return status_sentence(status)
        return "No queued job fits this node now; `pool node why` shows which jobs wait and why they do not run here."
