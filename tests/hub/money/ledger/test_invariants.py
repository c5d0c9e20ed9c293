"""The money rules of `pool hub check`: each is broken by hand, past every trigger and constraint, and exactly it is reported."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, select, text, update
from typer.testing import CliRunner

from computepool.cli.main import app
from computepool.core.money import ledger
from computepool.core.money.money import CREDIT
from computepool.hub.app import open_store
from computepool.hub.db import dialect
from computepool.hub.db.money_tables import transfers
from computepool.hub.db.session import Tx
from computepool.hub.money import booking
from computepool.hub.observability.consistency import pool as consistency
from computepool.hub.observability.invariants import GUARDS, MONEY_RULES, check_all
from computepool.testing.clock import FakeClock
from computepool.testing.factories import add_account
from tests.hub.money.ledger.conftest import Fresh
from tests.hub.money.ledger.world import build

SUM = "all balances add up to zero"
BALANCE = "a balance is the sum of its transfers"
OVERDRAWN = "only the bank and the promotion account may be overdrawn"
CHAIN = "each transfer's hash follows from the one before"
GAP = "transfers are numbered without a gap"
TIME = "the ledger's time never goes back"
KEY = "an idempotency key of the ledger is used once"
SIDES = "a transfer goes between accounts of its kind"
STRAY = "a job's money comes from and returns to its submitter"
PAID = "only owners whose results count are paid"
TAKEN = "transfers into escrow match the holds of all jobs"
USED = "a finished job's hold is used up exactly"
EARLY = "an unfinished job's hold is untouched"
ESCROW = "escrow holds what unfinished jobs hold"
CHARGE = "a charge is price times time, and its parts add up"
CEILING = "nobody pays above their ceiling"
UNUSED = "work without a result is paid for if another attempt used it"
MATURED = "matured credits were earned before"
BACK = "only pay for wrong results is taken back"
PAYOUT = "a payout is reserved once, and paid or returned once"
FLIGHT = "a payout's account holds its amount until it is decided"
PROVIDER = "each provider reference belongs to one payout"
SMALL = "no payout is below the minimum amount"
BANK = "the bank's account is what was paid in minus what was paid out"


@dataclass(frozen=True)
class Damage:
    """Manual changes of the database, the rules they break (the main one first), and a word that names the row."""

    rules: tuple[str, ...]
    statements: tuple[str, ...]
    named: str
    #: A forger computes the hashes anew; then only the other rules are left to find it.
    rehashed: bool = True


def _move(amount: int, debit: str, credit: str) -> tuple[str, str]:
    """Between balances only, without a transfer."""
    return (
        f"UPDATE balances SET balance = balance - {amount} WHERE account = '{debit}'",
        f"UPDATE balances SET balance = balance + {amount} WHERE account = '{credit}'",
    )


_MORE_PAY = "UPDATE transfers SET amount = amount + {} WHERE tx_key = 'settle:{{reused}}' AND kind = '{}'"

DAMAGES = {
    "a balance grows by itself": Damage(
        (SUM, BALANCE), _move(1, "nobody", "user:{sam}"), "Broken: all balances add up to zero: 1 too much."
    ),
    "a balance goes to another": Damage((BALANCE,), _move(1, "platform:fees", "user:{sam}"), "user:{sam}"),
    "a balance is forgotten": Damage(
        (BALANCE, SUM), ("DELETE FROM balances WHERE account = 'platform:fees'",), "platform:fees"
    ),
    "somebody may overdraw": Damage(
        (OVERDRAWN,), ("UPDATE balances SET can_overdraw = TRUE WHERE account = 'user:{sam}'",), "user:{sam}"
    ),
    "somebody is overdrawn": Damage(
        (OVERDRAWN, BALANCE), _move(100_000 * CREDIT, "user:{sam}", "platform:fees"), "user:{sam}"
    ),
    "words are changed": Damage(
        (CHAIN,), ("UPDATE transfers SET ref = 'other words' WHERE seq = 3",), "transfer 3", rehashed=False
    ),
    "an amount is changed": Damage(
        (CHAIN, BALANCE),
        ("UPDATE transfers SET amount = amount + 1 WHERE kind = 'grant'",),
        "transfer 3",
        rehashed=False,
    ),
    "the last hash is changed": Damage(
        (CHAIN,),
        ("UPDATE transfers SET hash = 'x' WHERE seq = (SELECT MAX(seq) FROM transfers)",),
        "transfer ",
        rehashed=False,
    ),
    "a number is left out": Damage(
        (GAP,), ("UPDATE transfers SET seq = 1000 WHERE tx_key = 'payout:{returned}:return'",), "transfer 1000"
    ),
    "the beginning is cut off": Damage(
        (GAP, BALANCE, BANK), ("DELETE FROM transfers WHERE seq = 1",), "before transfer 2"
    ),
    "a transfer is of another time": Damage((TIME,), ("UPDATE transfers SET at_ms = 1 WHERE seq = 5",), "transfer 5"),
    "a leg is missing": Damage((KEY,), ("UPDATE transfers SET leg = 7 WHERE seq = 3",), "grant:sam"),
    "a key is used twice": Damage(
        (KEY,), ("UPDATE transfers SET tx_key = 'topup:{sam}' WHERE seq = 3",), "topup:{sam}"
    ),
    "a try without a result is paid for": Damage(
        (UNUSED,), ("UPDATE attempts SET charge = 0 WHERE job_id = '{held}'",), "{held}-1"
    ),
    "a run took longer than its job may": Damage(
        (UNUSED,), ("UPDATE attempts SET resumed_no = 1 WHERE job_id = '{done}'",), "{done}-1"
    ),
    "a kind is changed": Damage((SIDES,), ("UPDATE transfers SET kind = 'payout_return' WHERE seq = 3",), "transfer 3"),
    "a refund goes to somebody else": Damage(
        (SIDES,),
        (
            "UPDATE transfers SET credit = 'user:{pia}' WHERE tx_key = 'settle:{failed}'",
            *_move(3_333_333_333, "user:{sam}", "user:{pia}"),
        ),
        "transfer ",
    ),
    "a refund goes to the other purse": Damage(
        (CHARGE,),
        (
            "UPDATE transfers SET credit = 'owner:{sam}' WHERE tx_key = 'settle:{failed}'",
            *_move(3_333_333_333, "user:{sam}", "owner:{sam}"),
            "INSERT INTO balances SELECT 'owner:{sam}', 3333333333, FALSE",
        ),
        "{failed}",
    ),
    "a settlement names no job": Damage(
        (STRAY,), ("UPDATE transfers SET tx_key = 'settle:other' WHERE tx_key = 'settle:{failed}'",), "transfer "
    ),
    "a hold names somebody else's job": Damage(
        (STRAY,), ("UPDATE transfers SET tx_key = 'hold:{reused}x' WHERE tx_key = 'hold:{failed}'",), "transfer "
    ),
    "another owner has run it": Damage(
        (PAID,), ("UPDATE attempts SET owner_id = '{sam}' WHERE id = '{done}-1'",), "transfer "
    ),
    "nobody is paid": Damage(
        (PAID, BALANCE, MATURED),
        (
            "UPDATE attempts SET owner_id = '' WHERE id = '{done}-1'",
            "UPDATE transfers SET credit = 'earn:' WHERE tx_key = 'settle:{done}' AND kind = 'pay'",
        ),
        "transfer ",
    ),
    "an attempt is accepted after the other was paid": Damage(
        (PAID, CHARGE), ("UPDATE jobs SET accepted_attempt = NULL WHERE id = '{done}'",), "transfer "
    ),
    "a job says it holds earnings": Damage(
        (TAKEN,), ("UPDATE jobs SET hold_earned = 1 WHERE id = '{held}'",), "escrow:{sam}"
    ),
    "a job was never held for": Damage(
        (TAKEN, ESCROW), ("UPDATE jobs SET hold = hold + 1 WHERE id = '{queued}'",), "escrow:{sam}"
    ),
    "a microcredit stays in a finished hold": Damage(
        (USED,),
        (
            "UPDATE jobs SET hold = hold + 1 WHERE id = '{failed}'",
            "UPDATE jobs SET hold = hold - 1 WHERE id = '{done}'",
        ),
        "{done}",
    ),
    "a job is failed without a release": Damage(
        (USED, ESCROW), ("UPDATE jobs SET state = 'failed' WHERE id = '{held}'",), "{held}"
    ),
    "a paid job is open again": Damage(
        (EARLY, ESCROW), ("UPDATE jobs SET state = 'queued' WHERE id = '{done}'",), "{done}"
    ),
    "escrow leaks": Damage((ESCROW, BALANCE), _move(1, "escrow:{sam}", "platform:fees"), "escrow:{sam}"),
    "more time is billed": Damage(
        (CHARGE,), ("UPDATE attempts SET billed_ms = billed_ms + 100 WHERE id = '{done}-1'",), "{done}"
    ),
    "the price is changed afterwards": Damage(
        (CHARGE,), ("UPDATE attempts SET price = price - 1000 WHERE id = '{done}-1'",), "{done}"
    ),
    "the price table is gone": Damage(
        (CHARGE,), ("UPDATE attempts SET price_version = 99 WHERE id = '{done}-1'",), "{done}"
    ),
    "the job says another charge": Damage(
        (CHARGE,), ("UPDATE jobs SET charge = charge + 1 WHERE id = '{done}'",), "{done}"
    ),
    "a failed job was charged": Damage((CHARGE,), ("UPDATE jobs SET charge = 1 WHERE id = '{failed}'",), "{failed}"),
    "the crumb goes to the owner": Damage(
        (CHARGE,),
        (_MORE_PAY.format(1, "pay"), _MORE_PAY.format(-1, "fee"), *_move(1, "platform:fees", "earn:{otto}")),
        "{reused}",
    ),
    "a price is above the ceiling": Damage(
        (CEILING,), ("UPDATE attempts SET price = price + 1 WHERE id = '{held}-1'",), "{held}-1"
    ),
    "a right result is taken back": Damage(
        (BACK,), ("UPDATE jobs SET verdict = 'confirmed' WHERE id = '{wrong}'",), "{wrong}"
    ),
    "a job does not say what was taken back": Damage(
        (BACK,), ("UPDATE jobs SET taken_back = NULL WHERE id = '{wrong}'",), "{wrong}"
    ),
    "a job says that something was taken back": Damage(
        (BACK,), ("UPDATE jobs SET taken_back = 1, verdict = 'refuted' WHERE id = '{done}'",), "{done}"
    ),
    "more is taken back than was paid": Damage(
        (BACK,),
        (
            "UPDATE transfers SET amount = amount + 1 WHERE kind = 'take_back' AND debit = 'earn:{otto}'",
            "UPDATE jobs SET taken_back = taken_back + 1 WHERE id = '{wrong}'",
            *_move(1, "earn:{otto}", "user:{sam}"),
        ),
        "{wrong}",
    ),
    "the fee is kept": Damage(
        (BACK,),
        (
            "UPDATE transfers SET amount = amount - 1 WHERE kind = 'take_back' AND debit = 'platform:fees'",
            "UPDATE jobs SET taken_back = taken_back - 1 WHERE id = '{wrong}'",
            *_move(1, "user:{sam}", "platform:fees"),
        ),
        "{wrong}",
    ),
    "it is taken back from somebody else": Damage(
        (BACK, BALANCE),
        ("UPDATE transfers SET debit = 'earn:{sam}' WHERE kind = 'take_back' AND debit = 'earn:{otto}'",),
        "transfer ",
    ),
    "what was taken back goes to somebody else": Damage(
        (STRAY, BALANCE), ("UPDATE transfers SET credit = 'user:{pia}' WHERE kind = 'take_back'",), "transfer "
    ),
    "what was taken back has matured": Damage(
        (MATURED, BALANCE),
        (
            "UPDATE transfers SET debit = 'earn:{otto}', credit = 'owner:{otto}' WHERE kind = 'mature'",
            "UPDATE transfers SET amount = 2 * amount, ref = '99' WHERE kind = 'mature'",
        ),
        "earn:{otto}",
    ),
    "more has matured than was earned": Damage(
        (MATURED, OVERDRAWN),
        (
            "UPDATE transfers SET amount = amount + 1 WHERE kind = 'mature'",
            *_move(1, "earn:{pia}", "owner:{pia}"),
            "INSERT INTO balances SELECT 'earn:{pia}', -1, TRUE",
        ),
        "earn:{pia}",
    ),
    "it is not said up to where earnings have matured": Damage(
        (MATURED,), ("UPDATE transfers SET ref = NULL WHERE kind = 'mature'",), "earn:{pia}"
    ),
    "a payout is somebody else's": Damage(
        (PAYOUT,), ("UPDATE payouts SET account_id = '{sam}' WHERE id = '{on_its_way}'",), "{on_its_way}"
    ),
    "a paid payout failed": Damage(
        (PAYOUT, BANK), ("UPDATE payouts SET state = 'failed' WHERE id = '{paid}'",), "{paid}"
    ),
    "a payout on its way is rejected without a return": Damage(
        (PAYOUT, FLIGHT), ("UPDATE payouts SET state = 'rejected' WHERE id = '{on_its_way}'",), "{on_its_way}"
    ),
    "a payout is forgotten": Damage(
        (PAYOUT,), ("DELETE FROM payouts WHERE id = '{on_its_way}'",), "payout:{on_its_way}"
    ),
    "a payout's money leaks": Damage(
        (FLIGHT, BALANCE), _move(1, "payout:{on_its_way}", "platform:fees"), "{on_its_way}"
    ),
    "a provider's reference comes twice": Damage(
        (PROVIDER,), ("UPDATE payouts SET provider_ref = 'ref of it'",), "ref of it"
    ),
    "the least payout was higher": Damage(
        (SMALL,),
        ("UPDATE price_tables SET body = REPLACE(body, '\"payout_min\": 5', '\"payout_min\": 6')",),
        "{on_its_way}",
    ),
    "the bank owes more": Damage((BANK, BALANCE), _move(1, "ext:bank", "platform:promo"), "ext:bank"),
}


@dataclass(frozen=True)
class Place:
    engine: Engine
    names: dict[str, str]

    def damaged(self, damage: Damage) -> list[str]:
        """The report of the checks in a transaction that is rolled back."""
        with self.engine.connect() as connection:
            for table in ("transfers", "balances", "payouts"):
                _unguard(connection, table)
            for statement in damage.statements:
                connection.execute(text(_filled(statement, self.names)))
            if damage.rehashed:
                _rehash(connection)
            return check_all(connection, MONEY_RULES)


def _filled(words: str, names: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: names[found[1]], words)


def _unguard(connection: Connection, table: str) -> None:
    """Copy the rows to a table without triggers, CHECKs and unique keys. Both databases can roll this back."""
    for statement in (
        f"CREATE TABLE unguarded AS SELECT * FROM {table}",
        f"DROP TABLE {table}",
        f"ALTER TABLE unguarded RENAME TO {table}",
    ):
        connection.execute(text(statement))


def _rehash(connection: Connection) -> None:
    previous = ledger.GENESIS
    for row in connection.execute(select(transfers).order_by(transfers.c.seq)).all():
        previous = ledger.chain_hash(previous, row._asdict())
        connection.execute(update(transfers).where(transfers.c.seq == row.seq).values(hash=previous))


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, fresh: Fresh) -> Iterator[Place]:
    url = fresh(request.param)
    store, engine = open_store(url, clock=FakeClock(), hub_id="hub"), dialect.make_migrator(url)
    try:
        yield Place(engine, asdict(build(store)))
    finally:
        engine.dispose()
        store.close()


def test_a_trigger_that_is_gone_is_missed(place: Place) -> None:
    with place.engine.connect() as connection:
        assert check_all(connection, GUARDS) == []
        sqlite = connection.dialect.name == "sqlite"
        gone = "transfers_delete" if sqlite else "transfers_change"
        connection.execute(text(f"DROP TRIGGER {gone}" if sqlite else f"DROP TRIGGER {gone} ON transfers"))
        assert check_all(connection, GUARDS) == [f"Broken: the database refuses to change transfers: {gone}."]


def test_every_rule_is_tried() -> None:
    assert {damage.rules[0] for damage in DAMAGES.values()} == MONEY_RULES.keys()


def test_a_healthy_ledger_breaks_no_rule(place: Place) -> None:
    assert place.damaged(Damage((), (), "", rehashed=False)) == []


@pytest.mark.parametrize("name", DAMAGES)
def test_exactly_what_was_damaged_is_found(place: Place, name: str) -> None:
    damage = DAMAGES[name]
    said = place.damaged(damage)
    assert {sentence.removeprefix("Broken: ").partition(": ")[0] for sentence in said} == set(damage.rules)
    [about] = [sentence for sentence in said if sentence.startswith(f"Broken: {damage.rules[0]}: ")]
    assert _filled(damage.named, place.names) in about


@pytest.mark.soak
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
async def test_the_check_sees_one_moment_while_money_moves(fresh: Fresh, database: str) -> None:
    store = open_store(fresh(database), clock=FakeClock(), hub_id="hub")
    store.start()
    account = await store.write(add_account)

    def unit(number: int, tx: Tx) -> None:
        booking.post(tx, f"topup:{number}", ledger.top_up(account, 1 + number, source=ledger.PROMO))

    async def write() -> int:
        number = 0
        while not done.is_set():
            await asyncio.gather(*(store.write(lambda tx, n=number + i: unit(n, tx)) for i in range(10)))
            number += 10
        return number

    def check() -> list[str]:
        with consistency.snapshot(store.url) as connection:
            return check_all(connection, MONEY_RULES)

    done = asyncio.Event()
    writing = asyncio.ensure_future(write())
    try:
        for _ in range(10):
            assert await asyncio.to_thread(check) == []
    finally:
        done.set()
        moved = await writing
        await store.stop()
    assert moved > 10


def test_the_command_says_which_row_and_exits_with_one(
    fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fresh("sqlite")
    store = open_store(url, clock=FakeClock(), hub_id="hub")
    account = store.write_now(add_account)
    store.write_now(lambda tx: booking.post(tx, "grant:1", ledger.grant(account, CREDIT)))
    monkeypatch.setenv("DATABASE_URL", url)
    assert CliRunner().invoke(app, ["hub", "check"]).exit_code == 0
    store.write_now(
        lambda tx: tx.connection.execute(text("UPDATE balances SET balance = 7 WHERE account LIKE 'user:%'"))
    )
    store.close()
    said = CliRunner().invoke(app, ["hub", "check"])
    assert said.exit_code == 1
    assert f"Broken: {BALANCE}: user:{account}." in said.stdout
