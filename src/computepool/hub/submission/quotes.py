"""Quotes: what a job will cost, when it will start, and what a provider would earn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from computepool.core.ids import make_id
from computepool.core.money import ledger, pricing, terms as core_terms
from computepool.core.money.pricing import PriceTable
from computepool.core.money.terms import Terms
from computepool.core.placement.outlook import OfferGroup, Outlook, outlook, percentile
from computepool.core.resources import Requirements
from computepool.core.trust.verification import Mode, VerificationPolicy
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.fleet.shapes import shape_of
from computepool.hub.identity.access import Principal
from computepool.hub.money import ledger_rows
from computepool.hub.nodes import hosts
from computepool.hub.scheduling import explanations
from computepool.hub.secrets import job_secrets
from computepool.hub.submission import quote_messages, verification
from computepool.protocol.jobs.jobs import requirements_of
from computepool.protocol.money.credits import Estimate, QuoteRequest, QuoteView, ZoneOffer

#: How far back history is read.
_RUNS_MAX = 200
_JOBS_LOOKED_AT = 5_000
_LEASES_LOOKED_AT = 2_000
_WAITS_MS = 24 * 3600 * 1000
_ZONES_SHOWN = 50


async def terms(
    hub: Hub,
    requirements: Requirements,
    account: str,
    *,
    timeout_s: float,
    items: int,
    max_price: int | None,
    budget: int | None,
    policy: VerificationPolicy,
) -> Terms:
    """The ceiling of a submission and its hold. Called for every submission, so it must stay quick.

    A job that names a node of the submitter's own costs nothing. Its ceiling of 0 keeps it from all other nodes, even if
    it moves.
    """
    fleet, now_ms = hub.nodes.registry.fleet, hub.now_ms()
    if await hosts.is_own(hub, account, requirements.node):
        ceiling = 0
    elif max_price is not None:
        ceiling = max_price
    else:
        ceiling = hub.money.ceilings.find(fleet, hub.money.market, requirements, account=account, now_ms=now_ms)
    agreed = core_terms.agree(
        ceiling=ceiling, timeout_ms=math.ceil(timeout_s * 1000), items=items, budget=budget, policy=policy
    )
    own_node = hub.money.ceilings.has_own(fleet, requirements, account=account, now_ms=now_ms)
    return replace(agreed, own_node=own_node)


@dataclass(frozen=True, slots=True)
class _History:
    balance: int
    runs: list[int]  #: sorted
    waits: list[int]


async def quote(hub: Hub, principal: Principal, request: QuoteRequest) -> QuoteView:
    needs = await hosts.resolve(hub, principal.account_id, request.needs)
    requirements = requirements_of(
        needs, net=request.net, labels=request.labels, timeout_s=request.timeout_s, dependencies=request.dependencies
    )
    if request.secret_owners is not None:
        owners = await job_secrets.owner_ids(hub, request.secret_owners)
        requirements = replace(requirements, secret_owners=owners)
    account = principal.account_id
    agreed = await terms(
        hub,
        requirements,
        account,
        timeout_s=request.timeout_s,
        items=request.items,
        max_price=request.max_price,
        budget=request.budget,
        policy=verification.policy(request.verify, request.confidence, hub.settings, host=request.needs.host),
    )
    shape = shape_of(requirements, account, ceiling=agreed.ceiling)
    seen = outlook(hub.nodes.registry.fleet, hub.money.market, shape)
    reason = "" if seen.able else (await explanations.explanation(hub, shape)).sentence
    zones = sorted({(group.offer.zone.tier, group.offer.zone.region) for group in seen.groups})
    history = await hub.store.read(_look_back, hub, account=account, request=request, zones=zones)
    view = _view(hub.money.market.table, request, agreed, seen=seen, history=history)
    view = view.model_copy(update={"reason": reason})
    few = quote_messages.missing_owners(agreed.policy, seen.owners)
    return view.model_copy(update={"sentences": quote_messages.sentences(view, request, few)})


def quorum_warning(hub: Hub, requirements: Requirements, *, account: str, agreed: Terms) -> str:
    """A warning that nodes of too few owners could run a job for its quorum; empty for all others, at no cost."""
    if agreed.policy.mode is not Mode.QUORUM:
        return ""
    seen = outlook(hub.nodes.registry.fleet, hub.money.market, shape_of(requirements, account, ceiling=agreed.ceiling))
    return quote_messages.missing_owners(agreed.policy, seen.owners)


def _look_back(
    connection: Connection, hub: Hub, account: str, *, request: QuoteRequest, zones: Sequence[tuple[str, str]]
) -> _History:
    balances = ledger_rows.get_balances(connection, account)
    since_id = make_id("job", max(0, hub.now_ms() - _WAITS_MS), bytes(10))
    waits = ledger_rows.waits(connection, zones, since_id=since_id, among=_LEASES_LOOKED_AT) if zones else []
    return _History(
        balances[ledger.user(account)] + balances[ledger.owner(account)],
        sorted(_runs(connection, account, request)),
        sorted(waits),
    )


def _runs(connection: Connection, account: str, request: QuoteRequest) -> list[int]:
    """Run times of the same spec, or else of the same name."""
    scope: dict[str, Any] = {"among": _JOBS_LOOKED_AT, "limit": _RUNS_MAX}
    runs: list[int] = []
    if request.spec_digest is not None:
        runs = ledger_rows.run_times(connection, account, spec_digest=request.spec_digest, name=None, **scope)
    if not runs and request.name is not None:
        runs = ledger_rows.run_times(connection, account, spec_digest=None, name=request.name, **scope)
    return runs


def _view(table: PriceTable, request: QuoteRequest, agreed: Terms, *, seen: Outlook, history: _History) -> QuoteView:
    likely = seen.likely()
    prices = [group.offer.price for group in likely]
    low, high = (min(prices), max(prices)) if prices else (None, None)
    start, run = _start(seen, history.waits), _run(history.runs)
    missing = max(0, agreed.hold_total - history.balance)
    limit_ms = math.ceil(request.timeout_s * 1000)
    paid_for_ms = pricing.affordable_ms(high or 0, agreed.hold_each // agreed.policy.runs)
    return QuoteView(
        economy=table.economy.value,
        price_version=table.version,
        items=request.items,
        price_low=low,
        price_high=high,
        max_price=agreed.ceiling,
        nodes_network=seen.networked,
        nodes_python=seen.python,
        nodes_warm=seen.warm,
        cold_ms=seen.cold_ms,
        hold_each=agreed.hold_each,
        hold_total=agreed.hold_total,
        own_node=agreed.own_node,
        verify=str(agreed.policy),
        runs=agreed.policy.runs,
        available=history.balance,
        affordable=not missing,
        missing=missing,
        lasts_ms=limit_ms if paid_for_ms is None else min(limit_ms, paid_for_ms),
        nodes=seen.nodes,
        nodes_now=seen.now,
        nodes_able=seen.able,
        nodes_too_expensive=seen.able - seen.agreed,
        zones=[_zone(group) for group in seen.groups[:_ZONES_SHOWN]],
        start=start,
        run=run,
        finish=_finish(start, run),
        cost_p50=_cost(high, run.p50_ms, most=agreed.hold_each),
        cost_p90=_cost(high, run.p90_ms, most=agreed.hold_each),
        **_earnings(table, likely, run=run, most=agreed.hold_each),
        sentences=[],
    )


def _zone(group: OfferGroup) -> ZoneOffer:
    zone = group.offer.zone
    return ZoneOffer.from_attributes(
        group.offer, tier=zone.tier, region=zone.region, nodes_now=group.now, nodes_able=group.able
    )


def _start(seen: Outlook, waits: list[int]) -> Estimate:
    if seen.now and seen.warm is not None and not seen.warm_now:
        if seen.cold_ms is None:
            return Estimate(text="Unknown: no node has said how long it takes to fetch what it needs.")
        return Estimate(p50_ms=seen.cold_ms, p90_ms=seen.cold_ms, text="A free node must fetch what it needs first.")
    if seen.now:
        return Estimate(p50_ms=0, p90_ms=0, text="At once: a node is free for it.")
    if not seen.able:
        return Estimate(text="Unknown: no connected node can run it.")
    if not seen.agreed:
        return Estimate(text="Unknown: no node that could run it accepts the price.")
    if not seen.awake:
        return Estimate(text="Unknown: every node that would run it is paused or offline now.")
    if not waits:
        return Estimate(text="Unknown: no job was placed on such a node in the last 24 hours.")
    return _estimate(waits, "jobs waited for such a node in the last 24 hours")


def _run(runs: list[int]) -> Estimate:
    if not runs:
        return Estimate(text="Unknown: you have not run a similar job yet.")
    return _estimate(runs, "of your similar jobs ran to completion")


def _estimate(ordered: list[int], text: str) -> Estimate:
    return Estimate(
        p50_ms=percentile(ordered, 50),
        p90_ms=percentile(ordered, 90),
        samples=len(ordered),
        text=f"{len(ordered)} {text}.",
    )


def _finish(start: Estimate, run: Estimate) -> Estimate:
    """Adds the percentiles of wait and run, which for the 90th errs on the late side."""
    if start.p50_ms is None or run.p50_ms is None:
        return Estimate(text=start.text if start.p50_ms is None else run.text)
    return Estimate(
        p50_ms=start.p50_ms + run.p50_ms,
        p90_ms=(start.p90_ms or 0) + (run.p90_ms or 0),
        samples=run.samples,
        text="The wait and the run together.",
    )


def _cost(price: int | None, ms: int | None, *, most: int) -> int | None:
    return None if price is None or ms is None else min(most, pricing.charge_of(price, ms))


def _earnings(table: PriceTable, likely: list[OfferGroup], *, run: Estimate, most: int) -> dict[str, int | None]:
    """For a node of another owner; on the submitter's own node nothing is paid."""
    paid = [group.offer.price for group in likely if not group.own]
    if not paid:
        return {}
    cost = _cost(max(paid), run.p50_ms, most=most)
    return {
        "earns_low": table.net_of(min(paid)),
        "earns_high": table.net_of(max(paid)),
        "earns_run": None if cost is None else table.net_of(cost),
    }
