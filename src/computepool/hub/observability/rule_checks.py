"""Checks of the database's rules from the dashboard: all rules in one snapshot, one check at a time."""

from __future__ import annotations

import asyncio
import logging

from computepool.hub.context import Hub
from computepool.hub.identity.access import Principal
from computepool.hub.observability import invariants
from computepool.hub.observability.consistency import pool
from computepool.hub.observability.invariants import RuleResult
from computepool.protocol.health import CheckView, RuleView

logger = logging.getLogger(__name__)
TOPIC = "check"


async def start(hub: Hub, admin: Principal) -> CheckView:
    """Start a check unless one is running, and return at once."""
    if hub.observability.check.state == "running":
        return hub.observability.check
    waiting = [RuleView(rule=rule, kind=invariants.kind_of(rule), state="waiting") for rule in invariants.RULES]
    hub.observability.check = CheckView(
        state="running",
        sentence="The rules are being checked.",
        started_at_ms=hub.now_ms(),
        requested_by=admin.account_id,
        rules=waiting,
    )
    hub.observability.check_task = asyncio.create_task(_run(hub, admin.account_id))
    return hub.observability.check


async def last(hub: Hub, *, wait_ms: int) -> CheckView:
    """The last check. Waits for the end of a running one."""

    async def load() -> tuple[CheckView, bool]:
        return hub.observability.check, hub.observability.check.state != "running"

    return await hub.long_poll(load, TOPIC, wait_ms=wait_ms)


async def _run(hub: Hub, requested_by: str) -> None:
    try:
        await hub.process.in_thread(_check, hub, asyncio.get_running_loop())
        broken = [rule for rule in hub.observability.check.rules if rule.state == "broken"]
        count = len(hub.observability.check.rules)
        sentence = f"All {count} rules hold." if not broken else f"{len(broken)} of {count} rules are broken."
        data = {"sentence": sentence, "broken": [rule.rule for rule in broken]}
        reason = "broken" if broken else "holds"
        await hub.store.write(lambda tx: tx.emit(actor=requested_by, action="hub.checked", reason=reason, data=data))
        _end(hub, state="done", sentence=sentence, broken=len(broken))
    except Exception as error:
        logger.exception("check.failed")
        _end(hub, state="failed", sentence=f"The rules could not be checked: {error}")
    finally:
        hub.signals.fire([TOPIC])


def _end(hub: Hub, **fields: object) -> None:
    hub.observability.check = hub.observability.check.model_copy(update={"finished_at_ms": hub.now_ms(), **fields})


def _check(hub: Hub, loop: asyncio.AbstractEventLoop) -> None:
    """On a thread. Each result is shown as soon as it is known."""
    with pool.snapshot(hub.settings.url) as connection:
        began_ms = hub.now_ms()
        for position, result in enumerate(invariants.check(connection)):
            now_ms = hub.now_ms()
            loop.call_soon_threadsafe(_show, hub, position, _view(result, took_ms=now_ms - began_ms))
            began_ms = now_ms


def _show(hub: Hub, position: int, rule: RuleView) -> None:
    rules = [*hub.observability.check.rules]
    rules[position] = rule
    broken = sum(rule.state == "broken" for rule in rules)
    hub.observability.check = hub.observability.check.model_copy(
        update={"rules": rules, "done": position + 1, "broken": broken}
    )


def _view(result: RuleResult, *, took_ms: int) -> RuleView:
    state = "broken" if result.broken else "holds"
    return RuleView.from_attributes(result, state=state, broken=len(result.broken), took_ms=took_ms)
