"""The rules of the database, looked at from the dashboard: all of them in one snapshot, one look at a time."""

from __future__ import annotations

import asyncio
import json
import logging

from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity.access import Principal
from computepool.hub.observability import invariants
from computepool.hub.observability.consistency import jobs as consistency
from computepool.hub.observability.invariants import RuleResult
from computepool.protocol.health import CheckView, RuleView

logger = logging.getLogger(__name__)
TOPIC = "check"


async def start(hub: Hub, admin: Principal) -> CheckView:
    """Begins, and answers at once; while one is under way there is no second."""
    if hub.observability.check.state == "running":
        return hub.observability.check
    waiting = [
        RuleView(rule=rule, kind=invariants.kind_of(rule), state="waiting") for rule in invariants.RULES
    ]
    hub.observability.check = CheckView(
        state="running",
        sentence="The rules are being checked.",
        started_at_ms=hub.now_ms(),
        requested_by=admin.account_id,
        rules=waiting,
    )
    hub.process.tasks.add(task := asyncio.create_task(_run(hub, admin.account_id)))
    task.add_done_callback(hub.process.tasks.discard)
    return hub.observability.check


async def last(hub: Hub, *, wait_ms: int) -> CheckView:
    """Waits for the end of one that is under way."""

    async def look() -> tuple[CheckView, bool]:
        return hub.observability.check, hub.observability.check.state != "running"

    return await hub.long_poll(look, TOPIC, wait_ms=wait_ms)


async def _run(hub: Hub, requested_by: str) -> None:
    try:
        await hub.process.in_thread(_look, hub, asyncio.get_running_loop())
        broken = [rule for rule in hub.observability.check.rules if rule.state == "broken"]
        count = len(hub.observability.check.rules)
        sentence = f"All {count} rules hold." if not broken else f"{len(broken)} of {count} rules are broken."
        await hub.store.write(lambda tx: _emit(tx, requested_by, sentence, broken=broken))
        _end(hub, state="done", sentence=sentence, broken=len(broken))
    except Exception as error:
        logger.exception("check.failed")
        _end(hub, state="failed", sentence=f"The rules could not be checked: {error}")
    finally:
        hub.signals.fire([TOPIC])


def _end(hub: Hub, **fields: object) -> None:
    hub.observability.check = hub.observability.check.model_copy(
        update={"finished_at_ms": hub.now_ms(), **fields}
    )


def _emit(tx: Tx, requested_by: str, sentence: str, *, broken: list[RuleView]) -> None:
    data = json.dumps({"sentence": sentence, "broken": [rule.rule for rule in broken]})
    tx.emit(actor=requested_by, action="hub.checked", reason="broken" if broken else "holds", data=data)


def _look(hub: Hub, loop: asyncio.AbstractEventLoop) -> None:
    """On a thread; each verdict is shown as soon as it is known."""
    with consistency.snapshot(hub.settings.url) as connection:
        began_ms = hub.now_ms()
        for place, verdict in enumerate(invariants.verdicts(connection)):
            now_ms = hub.now_ms()
            loop.call_soon_threadsafe(_note, hub, place, _view(verdict, took_ms=now_ms - began_ms))
            began_ms = now_ms


def _note(hub: Hub, place: int, seen: RuleView) -> None:
    rules = [*hub.observability.check.rules]
    rules[place] = seen
    broken = sum(rule.state == "broken" for rule in rules)
    hub.observability.check = hub.observability.check.model_copy(
        update={"rules": rules, "done": place + 1, "broken": broken}
    )


def _view(verdict: RuleResult, *, took_ms: int) -> RuleView:
    state = "broken" if verdict.broken else "holds"
    return RuleView.from_attributes(verdict, state=state, broken=len(verdict.broken), took_ms=took_ms)
