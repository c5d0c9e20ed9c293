"""Wiring: the only place where the hub's parts are built and put together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial
from importlib.metadata import version

from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute

from computepool.core.errors import Unavailable
from computepool.core.money.market import Market
from computepool.core.placement.gangs import GangHold
from computepool.hub.approvals import routes as approval_routes
from computepool.hub.artifacts import inline_rows, routes as artifact_routes
from computepool.hub.artifacts.state import ArtifactsState
from computepool.hub.artifacts.storage.choice import make_blobs
from computepool.hub.clock import Clock, SystemClock
from computepool.hub.context import Hub
from computepool.hub.db.dialect import hub_lock
from computepool.hub.db.listen import Listener
from computepool.hub.db.schema import migrate
from computepool.hub.db.session import CommitHooks, Store
from computepool.hub.db.signals import Signals
from computepool.hub.fast_path import FastPathApp
from computepool.hub.fleet.registry import Registry
from computepool.hub.groups import collector, routes as group_routes
from computepool.hub.groups.state import GroupsState
from computepool.hub.http import dashboard, errors
from computepool.hub.http.bodies import Bodies
from computepool.hub.http.compression import ListCompression
from computepool.hub.http.dashboard import Dashboard
from computepool.hub.http.headers import SecurityHeaders
from computepool.hub.http.openapi import document
from computepool.hub.http.openapi.document import Api, operation_id
from computepool.hub.http.rate_limit import RequestLimits
from computepool.hub.identity import routes as identity_routes
from computepool.hub.identity.authenticator import Authenticator
from computepool.hub.identity.signing.secrets import load_secrets
from computepool.hub.identity.state import IdentityState
from computepool.hub.jobs import routes as job_routes
from computepool.hub.jobs.queue import Queue
from computepool.hub.jobs.running import routes as attempt_routes, usage
from computepool.hub.jobs.specs import SpecCache
from computepool.hub.jobs.state import JobsState
from computepool.hub.lookup import routes as lookup_routes
from computepool.hub.loops import dispatch as dispatch_loop, housekeeping as upkeep_loop
from computepool.hub.money import booking, routes as credit_routes
from computepool.hub.money.market import routes as market_routes, spot_prices as market_service
from computepool.hub.money.payouts import routes as payout_routes
from computepool.hub.money.prices import load_table
from computepool.hub.money.state import MoneyState
from computepool.hub.nodes import known_nodes, routes as node_routes
from computepool.hub.nodes.state import NodesState
from computepool.hub.notifications import routes as webhook_routes
from computepool.hub.observability import event_routes, page_routes
from computepool.hub.observability.live import routes as mesh_routes
from computepool.hub.observability.state import LoopHealth, ObservabilityState
from computepool.hub.process import ProcessState
from computepool.hub.schedules import routes as schedule_routes
from computepool.hub.scheduling import cache_sync, leases
from computepool.hub.scheduling.dispatch import Dispatcher, explorer_of
from computepool.hub.scheduling.state import SchedulingState
from computepool.hub.secrets import routes as secret_routes
from computepool.hub.settings import Settings
from computepool.hub.settlement.state import SettlementState
from computepool.hub.settlement.verification import verification
from computepool.hub.trust import reputation_rows, submitter_reputation, submitter_reputation_rows
from computepool.hub.trust.state import TrustState
from computepool.hub.trust.submitter_reputation_rows import SubmitterCounts
from computepool.hub.volumes import routes as volume_routes

logger = logging.getLogger(__name__)
#: The store's threads and the event loop share one interpreter; the default of 5 ms would slow down every reply.
_SWITCH_INTERVAL_S = 0.0005

_DESCRIPTION = """Rent, lend and share idle machines as one computer.

People sign in with `Authorization: Bearer cp_…`; nodes with a token they sign themselves. Errors are RFC 9457 problem
details with a stable `code`. Lists are pages: ask again with `after=next`. Times are milliseconds since the epoch."""


def open_store(url: str, *, clock: Clock, hub_id: str, **options: int) -> Store:
    """A store with the commit hooks of all domains."""
    hooks = CommitHooks(
        before_numbering=(inline_rows.write, collector.close),
        while_numbering=(booking.write, reputation_rows.write, SubmitterCounts().write),
    )
    return Store(url, clock=clock, hub_id=hub_id, hooks=hooks, **options)


def build_hub(settings: Settings, clock: Clock) -> Hub:
    hub_id = clock.entropy(6).hex()
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    migrate(settings.url, rebuild=(reputation_rows.rebuild, submitter_reputation_rows.rebuild))
    store = open_store(
        settings.url,
        clock=clock,
        hub_id=hub_id,
        group_commit_max=settings.group_commit_max,
        read_threads=settings.read_threads,
    )
    return assemble(settings, clock, store)


def assemble(settings: Settings, clock: Clock, store: Store) -> Hub:
    """A hub with empty memory."""
    registry, secrets, specs = Registry(settings.lease_rules()), load_secrets(store, clock), SpecCache(store)
    market = Market(load_table(store, settings.economy, convert=settings.economy_convert))
    registry.fleet.set_prices(market)
    return Hub(
        settings=settings,
        clock=clock,
        store=store,
        signals=Signals(),
        process=ProcessState(store.hub_id, started_at_ms=clock.now_ms()),
        identity=IdentityState(secrets, Authenticator(store, clock, secrets)),
        artifacts=ArtifactsState(make_blobs(settings)),
        money=MoneyState(market),
        trust=TrustState(),
        nodes=NodesState(registry),
        jobs=JobsState(specs, Queue(store, clock, specs, most=settings.backlog_max)),
        scheduling=SchedulingState(
            GangHold(round(settings.gang_hold_after_s * 1000), round(settings.gang_hold_s * 1000)),
            explorer_of(settings, clock),
        ),
        settlement=SettlementState(),
        groups=GroupsState(),
        observability=ObservabilityState(LoopHealth(clock)),
    )


def create_app(settings: Settings, clock: Clock | None = None) -> FastAPI:
    clock = clock or SystemClock()
    api = create_api()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with hub_lock(settings.url):
            hub = build_hub(settings, clock)
            async with run_hub(hub):
                _publish((app, api), hub)
                yield

    app = FastPathApp(
        https=settings.address.startswith("https:"),
        prefix=settings.prefix,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.mount("/api/v1", api)
    app.include_router(page_routes.router)
    errors.install(app)
    export = dashboard.load(settings)
    if export is not None:
        app.add_middleware(Dashboard, export=export)
    app.add_middleware(ListCompression)
    app.add_middleware(SecurityHeaders, https=settings.address.startswith("https:"))
    return app


def create_api() -> FastAPI:
    """The API alone; its OpenAPI document needs no running hub."""
    api = Api(
        title="ComputePool",
        version=version("computepool"),
        description=_DESCRIPTION,
        generate_unique_id_function=operation_id,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        servers=[{"url": "/api/v1"}],
        routes=[*_routes()],
    )
    errors.install(api)
    return api


@cache
def _routes() -> list[BaseRoute]:
    """All routes, built once per process: FastAPI takes 60 ms to analyse them."""
    shared = APIRouter(generate_unique_id_function=operation_id)
    for router in (
        job_routes.router,
        group_routes.router,
        attempt_routes.router,
        node_routes.router,
        artifact_routes.router,
        identity_routes.router,
        event_routes.router,
        approval_routes.router,
        credit_routes.router,
        market_routes.router,
        mesh_routes.router,
        lookup_routes.router,
        payout_routes.router,
        webhook_routes.router,
        secret_routes.router,
        schedule_routes.router,
        volume_routes.router,
        document.router,
    ):
        shared.include_router(router)
    return shared.routes


def _publish(apps: tuple[FastAPI, ...], hub: Hub) -> None:
    """Put into the applications' state what routes look for there."""
    limits, bodies = RequestLimits(hub.clock, hub.settings), Bodies(hub.clock, hub.settings)
    for app in apps:
        app.state.hub, app.state.limits, app.state.bodies = hub, limits, bodies


@asynccontextmanager
async def run_hub(hub: Hub) -> AsyncIterator[None]:
    """Run a hub: store threads, boot, loops. At the end everything is stopped in order."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    hub.store.start(partial(cache_sync.follow_commit, hub))
    await hub.process.in_thread(hub.artifacts.blobs.claim, hub.identity.secrets.digest("artifacts"))
    others = cache_sync.OtherHubs(hub)
    listener = Listener(hub.settings.url, hub_id=hub.process.hub_id, receive=others.receive)
    await leases.on_boot(hub)
    await market_service.load(hub)
    await submitter_reputation.refresh(hub)
    await verification.load_varying(hub)
    await known_nodes.refresh(hub)
    await hub.jobs.queue.load_all()
    listener.start()
    duties = [dispatch_loop.run(hub, Dispatcher(hub)), dispatch_loop.follow(others), *upkeep_loop.duties(hub)]
    tasks = [asyncio.create_task(duty) for duty in duties]
    logger.info("hub.started: %s", hub.process.hub_id)
    try:
        yield
    finally:
        await _stop(hub, tasks, listener)


def release_waiters(hub: Hub) -> None:
    """Answer all parked requests now, and let none park any more."""
    hub.process.stopping = True
    for session in hub.nodes.registry.sessions:
        session.wake()
    hub.signals.fire_all()


async def _stop(hub: Hub, tasks: list[asyncio.Task[None]], listener: Listener) -> None:
    release_waiters(hub)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await listener.stop()
    with contextlib.suppress(Unavailable):  # `leases.on_stop` reports a database that is away
        await usage.save(hub, everything=True)
    await leases.on_stop(hub)
    hub.process.end()
    await hub.store.stop()
    logger.info("hub.stopped: %s", hub.process.hub_id)
