"""The only place where the hub's parts are built and wired together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version

from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute

from computepool.core.backlog import Backlog
from computepool.core.errors import Unavailable
from computepool.core.market import Market
from computepool.hub.api import (
    accounts,
    approvals,
    artifacts,
    attempts,
    dashboard,
    document,
    errors,
    events,
    groups,
    jobs,
    keys,
    market,
    mesh,
    nodes,
    pages,
    payouts,
    prices,
    references,
    webhooks,
)
from computepool.hub.api import credits as credit_routes
from computepool.hub.api.bodies import Bodies
from computepool.hub.api.dashboard import Dashboard
from computepool.hub.api.document import Api, operation_id
from computepool.hub.api.headers import SafeHeaders
from computepool.hub.api.hot import HotRoutes
from computepool.hub.api.packed import Packed
from computepool.hub.api.ratelimit import AccountLimits, Guesses, TokenBucket
from computepool.hub.blobs.choice import make_blobs
from computepool.hub.clock import Clock, SystemClock
from computepool.hub.loops import dispatch as dispatch_loop
from computepool.hub.loops import follow as follow_loop
from computepool.hub.loops import upkeep as upkeep_loop
from computepool.hub.registry import Registry
from computepool.hub.services import (
    collector,
    conduct,
    follow,
    known_nodes,
    leases,
    reputation,
    usage,
    verification,
)
from computepool.hub.services import market as market_service
from computepool.hub.services.context import Hub
from computepool.hub.services.dispatch import Dispatcher
from computepool.hub.services.identity import Authenticator
from computepool.hub.services.prices import load_table
from computepool.hub.services.secrets import load_secrets
from computepool.hub.services.threads import in_thread
from computepool.hub.settings import Settings
from computepool.hub.signals import Signals
from computepool.hub.store.dialect import HubLock
from computepool.hub.store.listen import Listener
from computepool.hub.store.schema import migrate
from computepool.hub.store.session import Store

logger = logging.getLogger(__name__)
#: Threads of the store and the event loop share one interpreter; the default of 5 ms would be felt in every reply.
_SWITCH_INTERVAL_S = 0.0005

_DESCRIPTION = """Rent, lend and share idle machines as one computer.

People sign in with `Authorization: Bearer cp_…`; nodes with a token they sign themselves. Errors are RFC 9457 problem
details with a stable `code`. Lists are pages: ask again with `after=next`. Times are milliseconds since the epoch."""


def build_hub(settings: Settings, clock: Clock) -> Hub:
    hub_id = clock.entropy(6).hex()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    migrate(settings.url)
    store = Store(
        settings.url,
        clock=clock,
        hub_id=hub_id,
        group_commit_max=settings.group_commit_max,
        read_threads=settings.read_threads,
    )
    registry = Registry(settings.lease_rules())
    prices_now = Market(load_table(store, settings.economy, convert=settings.economy_convert))
    registry.fleet.set_prices(prices_now)
    return Hub(
        hub_id=hub_id,
        settings=settings,
        clock=clock,
        store=store,
        registry=registry,
        backlog=Backlog(),
        signals=Signals(),
        secrets=load_secrets(store, clock),
        blobs=make_blobs(settings),
        market=prices_now,
    )


def create_app(settings: Settings, clock: Clock | None = None) -> FastAPI:
    clock = clock or SystemClock()
    api = create_api()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        lock = HubLock(settings.url)
        try:
            async with running(
                build_hub(settings, clock), on_ready=lambda hub, parts: _publish((app, api), hub, parts)
            ):
                yield
        finally:
            lock.release()

    app = HotRoutes(
        https=settings.address.startswith("https:"),
        prefix=settings.prefix,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.mount("/api/v1", api)
    app.include_router(pages.router)
    errors.install(app)
    export = dashboard.load(settings)
    if export is not None:
        app.add_middleware(Dashboard, export=export)
    app.add_middleware(Packed)
    app.add_middleware(SafeHeaders, https=settings.address.startswith("https:"))
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
    """FastAPI works out what each route takes when one is first asked for: 60 ms, once for all hubs of a process."""
    shared = APIRouter(generate_unique_id_function=operation_id)
    for router in (
        jobs.router,
        groups.router,
        attempts.router,
        nodes.router,
        artifacts.router,
        accounts.router,
        events.router,
        keys.router,
        approvals.router,
        credit_routes.router,
        prices.router,
        market.router,
        mesh.router,
        references.router,
        payouts.router,
        webhooks.router,
        document.router,
    ):
        shared.include_router(router)
    return shared.routes


def _publish(targets: tuple[FastAPI, ...], hub: Hub, parts: tuple[Dispatcher, Authenticator]) -> None:
    """Routes find these through their application's state."""
    clock, settings = hub.clock, hub.settings
    registrations = TokenBucket(clock, per_s=settings.registrations_per_s)
    requests = AccountLimits(clock, per_s=settings.requests_per_s, what="ask {per_s:g} times a second")
    submissions = AccountLimits(clock, per_s=settings.submits_per_s, what="submit {per_s:g} times a second")
    messages = AccountLimits(
        clock, per_s=settings.messages_per_s, what="send {per_s:g} messages a second from one job"
    )
    guesses = Guesses(clock, per_min=settings.failed_signins_per_min, burst=settings.failed_signins_burst)
    bodies = Bodies(clock, settings)
    for target in targets:
        target.state.hub, target.state.bodies = hub, bodies
        target.state.dispatcher, target.state.authenticator = parts
        target.state.registrations, target.state.guesses = registrations, guesses
        target.state.requests, target.state.submissions = requests, submissions
        target.state.messages = messages


@asynccontextmanager
async def running(
    hub: Hub, *, on_ready: Callable[[Hub, tuple[Dispatcher, Authenticator]], None]
) -> AsyncIterator[tuple[Dispatcher, Authenticator]]:
    """A hub at work: store threads, boot, loops; everything stopped in order at the end."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    hub.store.start()
    await in_thread(hub, hub.blobs.claim, hub.secrets.digest("artifacts"))
    dispatcher, authenticator = Dispatcher(hub), Authenticator(hub)
    hub.store.on_commit = lambda topics: follow.own_commit(hub, authenticator, topics)
    hub.store.on_closing = collector.close
    hub.store.on_reputation = lambda changed: reputation.follow(hub, changed)
    hub.store.on_conduct = lambda changed: conduct.follow(hub, changed)
    others = follow.OtherHubs(hub, dispatcher, authenticator)
    listener = Listener(hub.settings.url, hub_id=hub.hub_id, heard=others.heard)
    await leases.on_boot(hub)
    await market_service.load(hub)
    await conduct.refresh(hub)
    await verification.load_varying(hub)
    await known_nodes.refresh(hub)
    await dispatcher.load(since_ms=0)
    on_ready(hub, (dispatcher, authenticator))
    listener.start()
    duties = [
        dispatch_loop.run(hub, dispatcher),
        follow_loop.run(others),
        *upkeep_loop.duties(hub, dispatcher, authenticator),
    ]
    tasks = [asyncio.create_task(duty) for duty in duties]
    logger.info("hub.started: %s", hub.hub_id)
    try:
        yield dispatcher, authenticator
    finally:
        await _stop(hub, tasks, listener)


def release_waiters(hub: Hub) -> None:
    """Everything parked is answered now, and nothing parks any more."""
    hub.stopping = True
    for session in hub.registry.sessions:
        session.wake()
    hub.signals.fire_all()


async def _stop(hub: Hub, tasks: list[asyncio.Task[None]], listener: Listener) -> None:
    release_waiters(hub)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await listener.stop()
    with contextlib.suppress(Unavailable):  # a database that is away is said below
        await usage.save(hub, everything=True)
    await leases.on_stop(hub)
    hub.blob_threads.shutdown(wait=False, cancel_futures=True)
    await hub.store.stop()
    logger.info("hub.stopped: %s", hub.hub_id)
