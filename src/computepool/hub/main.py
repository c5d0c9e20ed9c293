"""Starting a hub: the server process, and the first-run set-up that `pool up` does before it."""

from __future__ import annotations

import gc
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
from computepool.hub.db.dialect import HubLock
from computepool.hub.db.session import Tx
from computepool.hub.http.slow_client_guard import protocol_for
from computepool.hub.identity import rows as account_rows
from computepool.hub.identity import sign_in
from computepool.hub.identity.signing import rotation
from computepool.hub.identity.signing import rows as signing_key_rows
from computepool.hub.identity.signing.rows import SigningKeyRow
from computepool.hub.identity.signing.secrets import make_key
from computepool.hub.money import new_accounts
from computepool.hub.observability import invariants
from computepool.hub.observability.consistency import jobs as consistency
from computepool.hub.settings import Settings
from computepool.hub.snapshot import Snapshot, take
from computepool.protocol import plain_log

T = TypeVar("T")
ADMIN = "admin"
_START_FAILED = 3  #: what uvicorn's own command says
_SERVING_MS = 30_000
#: The garbage collector's: new objects, and how many looks at the young ones come before one at the older ones.
_YOUNG, _MIDDLE, _OLD = 700, 10, 1_000
_LOCAL_KEY_NAME = "pool up"
_ROLES = ("admin", "submitter", "provider")


def serve(settings: Settings) -> None:
    """Blocks until the process is told to stop."""
    plain_log.configure(settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    _allow_connections()
    # Refused here, with a sentence, rather than inside the server's start-up.
    HubLock(settings.url).release()
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
    server = _Server(config, before_shutdown=lambda: release_waiters(app.state.hub))
    # The program itself is 190 000 objects that stay; looking through them stopped every request for a tenth of a second.
    gc.collect()
    gc.freeze()
    # And so would every look at all that parked polls and sessions hold, ten times a minute with 10 000 nodes.
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
    server.run()
    if not server.started:
        raise SystemExit(_START_FAILED)


def _allow_connections() -> None:
    """As many as the system lets this process have: its usual limit of a thousand files would be a thousand nodes."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _check_blobs(settings: Settings) -> None:
    """That the store of artifacts is there and lets us in; at S3, by a look at an object that is not there."""
    try:
        make_blobs(settings).size(place_of("0" * 64, "0" * 16))
    except Unavailable as error:
        raise Unavailable(f"{error.detail} (COMPUTEPOOL_BLOBS={settings.blobs}, COMPUTEPOOL_S3_…)") from error


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
    try:
        return _with_store(settings, _first_words)
    finally:
        lock.release()


def signin_link(settings: Settings) -> str:
    """A one-time link for the admin, who is made if there is none. A hub may be serving meanwhile."""

    def effect(tx: Tx, snapshot: Snapshot) -> str:
        code = _code(tx, snapshot, _admin(tx, snapshot), purpose="signin")
        # The hub that serves knows its address better than the settings of this process.
        served = account_rows.live_address(tx.connection, since_ms=tx.now_ms - _SERVING_MS)
        return f"{served or settings.address}/signin?code={code}"

    return _with_store(settings, effect)


def rotate_key(settings: Settings) -> list[dict[str, object]]:
    """Switch to the next signing key; hubs that serve follow within seconds. What there is afterwards."""

    def effect(tx: Tx, snapshot: Snapshot) -> list[dict[str, object]]:
        rotation.rotate_in(tx, snapshot.clock, settings=settings, actor="operator")
        return _keys(tx)

    return _with_store(settings, effect)


def list_keys(settings: Settings) -> list[dict[str, object]]:
    return _with_store(settings, lambda tx, _: _keys(tx))


def _keys(tx: Tx) -> list[dict[str, object]]:
    """Never the private halves."""
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


def _first_words(tx: Tx, snapshot: Snapshot) -> Bootstrap:
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
    new_accounts.grant_to_operator(tx, account_id, settings=snapshot.settings, table=snapshot.table)
    return account_id


def _code(tx: Tx, snapshot: Snapshot, account_id: str, *, purpose: str) -> str:
    settings = snapshot.settings
    lives = {"enrol": settings.enrol_code_lifetime_s, "signin": settings.signin_code_lifetime_s}
    code, _ = sign_in.issue_code(
        tx, snapshot, purpose=purpose, account_id=account_id, lifetime_s=lives[purpose]
    )
    return code


def check(settings: Settings, *, deep: bool = False) -> list[str]:
    """The rules that the database and the files break, a sentence each; hubs may go on serving meanwhile."""
    with consistency.snapshot(settings.url) as connection:
        broken = invariants.check_all(connection)
    snapshot = partial(consistency.snapshot, settings.url)
    return [*broken, *file_check.check_files(snapshot, make_blobs(settings), deep=deep)]
