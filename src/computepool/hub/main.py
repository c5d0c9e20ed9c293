"""Starting a hub: the server process, and the first-run set-up that `pool up` does before it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn

from computepool.hub.app import build_hub, create_app, release_waiters
from computepool.hub.clock import SystemClock, new_id
from computepool.hub.services import identity, invariants
from computepool.hub.services.secrets import make_key
from computepool.hub.settings import Settings
from computepool.hub.store import accounts, consistency
from computepool.hub.store.dialect import HubLock
from computepool.hub.store.session import Tx

ADMIN = "admin"
_START_FAILED = 3  #: what uvicorn's own command says
_LOCAL_KEY_NAME = "pool up"
_ROLES = ("admin", "submitter", "provider")


def serve(settings: Settings) -> None:
    """Blocks until the process is told to stop."""
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    # Refused here, with a sentence, rather than inside the server's start-up.
    HubLock(settings.url).release()
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        loop="uvloop",
        http="httptools",
        limit_concurrency=settings.concurrency_max,
        timeout_graceful_shutdown=settings.shutdown_s,
        timeout_keep_alive=75,
        server_header=False,
    )
    server = _Server(config, before_shutdown=lambda: release_waiters(app.state.hub))
    server.run()
    if not server.started:
        raise SystemExit(_START_FAILED)


class _Server(uvicorn.Server):
    """Answers parked polls and streams before it waits for requests to end; else each would be broken off."""

    def __init__(self, config: uvicorn.Config, *, before_shutdown: Callable[[], None]) -> None:
        super().__init__(config)
        self._before_shutdown = before_shutdown

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._before_shutdown()
        await super().shutdown(sockets)


@dataclass(frozen=True, slots=True)
class Bootstrap:
    admin_key: str
    enrol_code: str
    signin_code: str


def bootstrap(settings: Settings) -> Bootstrap:
    """Make sure there is an admin, and give the local machine a fresh key and one-time codes. Before the hub serves."""
    lock = HubLock(settings.url)
    clock = SystemClock()
    hub = None
    try:
        hub = build_hub(settings, clock)

        def unit(tx: Tx) -> Bootstrap:
            account = accounts.find_account(tx.connection, ADMIN)
            account_id = account.id if account is not None else new_id(clock, "acc")
            if account is None:
                accounts.insert_account(tx, account_id=account_id, name=ADMIN, roles=_ROLES)
                tx.emit(actor="hub", action="account.created", account_id=account_id)
            accounts.revoke_keys_named(tx, account_id=account_id, name=_LOCAL_KEY_NAME)
            key_id, secret = clock.entropy(8).hex(), clock.entropy(32)
            accounts.insert_key(
                tx,
                id=key_id,
                account_id=account_id,
                kind="key",
                name=_LOCAL_KEY_NAME,
                hash=hub.secrets.digest(secret.hex()),
            )
            codes = {
                purpose: identity.issue_code(hub, tx, purpose=purpose, account_id=account_id, life_s=life_s)[
                    0
                ]
                for purpose, life_s in (
                    ("enrol", settings.enrol_code_life_s),
                    ("signin", settings.signin_code_life_s),
                )
            }
            return Bootstrap(make_key(key_id, secret), codes["enrol"], codes["signin"])

        return hub.store.write_now(unit)
    finally:
        if hub is not None:
            hub.store.close()
        lock.release()


def check(settings: Settings) -> list[str]:
    """The rules that the database breaks, a sentence each; hubs may go on serving meanwhile."""
    with consistency.snapshot(settings.url) as connection:
        return invariants.check_all(connection)
