"""Starting a hub: the server process, and the set-up that `pool up` does before its first start."""

from __future__ import annotations

import gc
import logging
import resource
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import uvicorn

from computepool.core.errors import Unavailable
from computepool.hub.app import build_hub, create_app, release_waiters
from computepool.hub.artifacts import file_check
from computepool.hub.artifacts.storage.base import place_of
from computepool.hub.artifacts.storage.choice import make_blobs
from computepool.hub.clock import SystemClock, new_id
from computepool.hub.db.dialect import hub_lock
from computepool.hub.db.session import Tx
from computepool.hub.http.repeated_requests import protocol_for
from computepool.hub.identity import rows as account_rows, sign_in
from computepool.hub.identity.signing import rotation, rows as signing_key_rows
from computepool.hub.identity.signing.rows import SigningKeyRow
from computepool.hub.identity.signing.secrets import make_key
from computepool.hub.money import new_accounts
from computepool.hub.observability import invariants
from computepool.hub.observability.consistency import pool as consistency
from computepool.hub.settings import Settings
from computepool.hub.snapshot import Snapshot, take
from computepool.protocol import plain_log

logger = logging.getLogger(__name__)
T = TypeVar("T")
ADMIN = "admin"
_START_FAILED = 3  #: the exit code of uvicorn's own command
#: The garbage collector's thresholds: old objects are collected a hundred times more rarely than by default.
_GC_THRESHOLDS = (700, 10, 1_000)
_LOCAL_KEY_NAME = "pool up"
_ROLES = ("admin", "submitter", "provider")


def serve(settings: Settings) -> None:
    """Serve until the process is asked to stop."""
    plain_log.configure(settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    _allow_connections()
    # Checked here, because an error inside the server's start-up would come with a traceback.
    with hub_lock(settings.url):
        pass
    _check_blobs(settings)
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        loop="uvloop",
        http=protocol_for(settings),
        ws="none",
        limit_concurrency=settings.concurrency_max,
        timeout_graceful_shutdown=settings.shutdown_s,
        timeout_keep_alive=75,
        server_header=False,
    )
    server = _Server(config, address=settings.address, before_shutdown=lambda: release_waiters(app.state.hub))
    # The program itself is 190 000 permanent objects; scanning them paused all requests for a tenth of a second. So would
    # scanning all that parked polls and sessions refer to, ten times a minute with 10 000 nodes.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    server.run()
    if not server.started:
        raise SystemExit(_START_FAILED)


def _allow_connections() -> None:
    """Raise the limit of open files: the usual thousand would allow only a thousand nodes."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _check_blobs(settings: Settings) -> None:
    """Check that the artifact store is reachable and accepts our credentials, by asking for an object that does not exist."""
    try:
        make_blobs(settings).size(place_of("0" * 64, "0" * 16))
    except Unavailable as error:
        raise Unavailable(f"{error.detail} (COMPUTEPOOL_BLOBS={settings.blobs}, COMPUTEPOOL_S3_…)") from error


class _Server(uvicorn.Server):
    """Answers parked polls and streams before it waits for requests to end, or each would be cut off."""

    def __init__(self, config: uvicorn.Config, *, address: str, before_shutdown: Callable[[], None]) -> None:
        super().__init__(config)
        self._address = address
        self._before_shutdown = before_shutdown

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            logger.info("hub.listening: %s; for the administrator's sign-in link, run: pool hub link", self._address)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._before_shutdown()
        await super().shutdown(sockets)


@dataclass(frozen=True, slots=True)
class Bootstrap:
    admin_key: str
    enrol_code: str
    signin_code: str


def bootstrap(settings: Settings) -> Bootstrap:
    """Create the admin if there is none, and a fresh key and one-time codes for the local machine. No hub may be serving."""
    with hub_lock(settings.url):
        return _with_store(settings, _bootstrap)


def signin_link(settings: Settings) -> str:
    """A one-time sign-in link for the admin, who is created if there is none. A hub may be serving."""

    def effect(tx: Tx, snapshot: Snapshot) -> str:
        code = _code(tx, snapshot, _admin(tx, snapshot), purpose="signin")
        # A hub that is serving may have another address than the settings of this process say.
        served = account_rows.live_address(tx.connection, since_ms=tx.now_ms - account_rows.HUB_FRESH_MS)
        return f"{served or settings.address}/signin?code={code}"

    return _with_store(settings, effect)


def rotate_key(settings: Settings) -> list[dict[str, object]]:
    """Switch to the next signing key, and list all keys. Running hubs follow within seconds."""

    def effect(tx: Tx, snapshot: Snapshot) -> list[dict[str, object]]:
        rotation.rotate_in(tx, snapshot.clock, settings=settings, actor="operator")
        return _keys(tx)

    return _with_store(settings, effect)


def list_keys(settings: Settings) -> list[dict[str, object]]:
    return _with_store(settings, lambda tx, _: _keys(tx))


def _keys(tx: Tx) -> list[dict[str, object]]:
    """The signing keys without their private halves."""
    shown = ("kid", "public_key", "created_at_ms", "starts_at_ms", "ends_at_ms", "endorsed_by")
    rows = signing_key_rows.list_keys(tx.connection)
    current = [row.kid for row in rows if row.starts_at_ms is not None][-1]

    def state(row: SigningKeyRow) -> str:
        if row.private_key is None:
            return "retired"
        return "next" if row.starts_at_ms is None else "current" if row.kid == current else "accepted"

    return [{"state": state(row), **{name: getattr(row, name) for name in shown}} for row in rows]


def _with_store(settings: Settings, effect: Callable[[Tx, Snapshot], T]) -> T:
    hub = build_hub(settings, SystemClock())
    known = take(hub)
    try:
        return hub.store.write_now(lambda tx: effect(tx, known))
    finally:
        hub.store.close()


def _bootstrap(tx: Tx, snapshot: Snapshot) -> Bootstrap:
    account_id = _admin(tx, snapshot)
    account_rows.revoke_keys_named(tx, account_id=account_id, name=_LOCAL_KEY_NAME)
    key_id, secret = snapshot.clock.entropy(8).hex(), snapshot.clock.entropy(32)
    account_rows.insert_key(
        tx,
        id=key_id,
        account_id=account_id,
        kind="key",
        name=_LOCAL_KEY_NAME,
        hash=snapshot.secrets.digest(secret.hex()),
    )
    return Bootstrap(
        make_key(key_id, secret),
        _code(tx, snapshot, account_id, purpose="enrol"),
        _code(tx, snapshot, account_id, purpose="signin"),
    )


def _admin(tx: Tx, snapshot: Snapshot) -> str:
    account = account_rows.find_account(tx.connection, ADMIN)
    if account is not None:
        return str(account.id)
    account_id = new_id(snapshot.clock, "acc")
    account_rows.insert_account(tx, account_id=account_id, name=ADMIN, roles=_ROLES)
    tx.emit(actor="hub", action="account.created", account_id=account_id)
    # Enough to try everything; an administrator can grant credits to anybody anyway.
    new_accounts.grant_credits(tx, account_id, amount=snapshot.settings.operator_grant, table=snapshot.table)
    return account_id


def _code(tx: Tx, snapshot: Snapshot, account_id: str, *, purpose: str) -> str:
    settings = snapshot.settings
    lives = {"enrol": settings.enrol_code_lifetime_s, "signin": settings.signin_code_lifetime_s}
    code, _ = sign_in.issue_code(tx, snapshot, purpose=purpose, account_id=account_id, lifetime_s=lives[purpose])
    return code


def check(settings: Settings, *, deep: bool = False) -> list[str]:
    """One sentence for each rule that the database or the files break. Hubs may be serving."""
    with consistency.snapshot(settings.url) as connection:
        broken = invariants.check_all(connection)
    snapshot = partial(consistency.snapshot, settings.url)
    damaged = file_check.check_files(snapshot, make_blobs(settings), deep=deep)
    return broken + invariants.sentences(damaged)
