"""Sentences that explain a quote to people."""

from __future__ import annotations

from computepool.core.money.money import format_credits, free_or_reserved
from computepool.core.money.pricing import Economy
from computepool.core.pythons import any_version
from computepool.core.trust.verification import Mode, VerificationPolicy
from computepool.core.words import pluralize
from computepool.protocol.money.credits import Estimate, QuoteRequest, QuoteView


def sentences(view: QuoteView, request: QuoteRequest, too_few_owners: str = "") -> list[str]:
    found = [
        _who(view),
        too_few_owners,
        network(view),
        _python(view, request),
        _warm(view),
        _price(view),
        _most(view, request),
        _checks(view),
        _balance(view),
        *_times(view),
        _earns(view),
    ]
    return [sentence for sentence in found if sentence]


def _who(view: QuoteView) -> str:
    if not view.nodes:
        return "No node is connected now."
    if not view.nodes_able:
        return view.reason
    takers = pluralize(view.nodes_now, "node") if view.nodes_now else "No node"
    dear = f"; {view.nodes_too_expensive} of them not at this price" if view.nodes_too_expensive else ""
    return f"{takers} would take it now, and {pluralize(view.nodes_able, 'node')} of {view.nodes} could run it{dear}."


def missing_owners(policy: VerificationPolicy, owners: int) -> str:
    """Why a quorum cannot be reached now; empty if it can, and if no node at all could run the job."""
    if policy.mode is not Mode.QUORUM or not 0 < owners < policy.quorum:
        return ""
    return (
        f"{policy} needs nodes of {policy.quorum} owners, but those that could run it now belong to "
        f"{pluralize(owners, 'owner')}: its result waits for more."
    )


def network(view: QuoteView) -> str:
    if view.nodes_network is None or view.nodes_network == view.nodes:
        return ""
    take = "takes" if view.nodes_network == 1 else "take"
    return f"{pluralize(view.nodes_network, 'node')} of {view.nodes} {take} jobs with network (--net)."


def _python(view: QuoteView, request: QuoteRequest) -> str:
    """How many nodes have the Python version that the job needs."""
    if view.nodes_python is None or view.nodes_python == view.nodes:
        return ""
    version = f"Python {any_version(request.needs.requirements().pythons)}"
    if not view.nodes_python:
        return "" if version in view.reason else f"No node has {version}, which it needs."
    have = "has" if view.nodes_python == 1 else "have"
    return f"{view.nodes_python} of {pluralize(view.nodes, 'node')} {have} {version}, which it needs."


def _warm(view: QuoteView) -> str:
    """How many nodes start it at once, and how long the others take."""
    if view.nodes_warm is None or not view.nodes_able:
        return ""
    cold = view.nodes_able - view.nodes_warm
    about = "" if view.cold_ms is None else f" about {_span(view.cold_ms)}"
    slow = f"Cold start{about} on {pluralize(cold, 'node')}" if cold else ""
    warm = f"{'warm' if cold else 'Warm'} on {view.nodes_warm}{'' if cold else ' of them'}" if view.nodes_warm else ""
    return f"{', '.join(filter(None, (slow, warm)))}."


def _price(view: QuoteView) -> str:
    if view.price_low is None or view.price_high is None:
        return ""
    each = " for each job" if view.items > 1 else ""
    if not view.price_high:
        unpriced = view.economy == Economy.NONE.value
        return "Everything is free in this pool." if unpriced else free_or_reserved(view.hold_total)
    low, high = format_credits(view.price_low), format_credits(view.price_high)
    span = f"{high} credits per hour" if low == high else f"{low} to {high} credits per hour"
    free = f" {free_or_reserved(view.hold_total)}" if view.own_node else ""
    return f"The current price is {span}{each}; it is fixed once a job is placed.{free}"


def _most(view: QuoteView, request: QuoteRequest) -> str:
    if not view.hold_total:
        return "Nothing is put on hold." if view.max_price == 0 and view.economy != Economy.NONE.value else ""
    market = view.economy == Economy.MARKET.value
    why = "about twice the highest price it could meet now" if market else "the fixed price of this pool"
    if request.max_price is not None:
        why = "your limit"
    each = format_credits(view.hold_each)
    total = f"{each} credits"
    if view.items > 1:
        total += f" for each of {view.items} jobs, {format_credits(view.hold_total)} in all,"
    paid = f"It pays at most {format_credits(view.max_price)} per hour ({why})"
    share = request.budget is not None and view.hold_each == request.budget // view.items
    bound = "the budget" if share else _runs(view.runs, _span(round(request.timeout_s * 1000)))
    return f"{paid}. {total} are put on hold for {bound}; what is not used is refunded."


def _runs(runs: int, each: str) -> str:
    if runs == 1:
        return f"a run of {each}"
    more = runs - 1
    checks = "one check" if more == 1 else f"{more} checks"
    return f"the run and {checks} of its result, {each} each"


def _checks(view: QuoteView) -> str:
    """What verification may add to the price."""
    if view.runs == 1 or not view.price_high:
        return ""
    if view.verify == Mode.ADAPTIVE.value:
        return (
            "Some results are verified on another owner's node, if one can run the job: those of a new node, later 1 in 10 "
            "to 1 in 20. A verified job costs twice as much. --verify none turns this off."
        )
    return f"Its result counts when nodes of several owners agree on it ({view.verify}): that costs up to {view.runs} runs."


def _balance(view: QuoteView) -> str:
    if not view.hold_total:
        return ""
    if view.affordable:
        return f"You have {format_credits(view.available)} credits to spend, which is enough."
    return (
        f"You have {format_credits(view.available)} credits to spend; {format_credits(view.missing)} are missing. "
        "Shorten --timeout, lower --max-price, set a --budget, or top up."
    )


def _times(view: QuoteView) -> list[str]:
    one = " of the first" if view.items > 1 else ""
    found = [_time(f"Expected start{one}", view.start)]
    if view.cost_p50 is not None and view.cost_p90:
        half, most = format_credits(view.cost_p50), format_credits(view.cost_p90)
        cost = half if half == most else f"{half} to {most}"
        found.append(f"Such jobs ran {_both(view.run)}: that would cost {cost} credits.")
    found.append(_time(f"Expected finish{one}", view.finish))
    return found


def _time(what: str, known: Estimate) -> str:
    if known.p50_ms is None:
        _, _, why = known.text.rstrip(".").partition(": ")
        return f"{what}: unknown ({why})." if why else f"{what}: unknown."
    if known.p90_ms == 0:
        return f"{what}: at once."
    return f"{what}: in {_both(known)}."


def _both(known: Estimate) -> str:
    half, most = _span(known.p50_ms or 0), _span(known.p90_ms or 0)
    return half if half == most else f"{half} (half of them) or up to {most} (nine of ten)"


def _earns(view: QuoteView) -> str:
    if not view.earns_high or view.earns_low is None:
        return ""
    low, high = format_credits(view.earns_low), format_credits(view.earns_high)
    span = high if low == high else f"{low} to {high}"
    run = "" if view.earns_run is None else f", {format_credits(view.earns_run)} for an ordinary run"
    return f"The node's owner would earn {span} credits per hour{run}, after the fee."


def _span(ms: int) -> str:
    """Rounded to two digits."""
    for size, unit, limit in ((1, "ms", 1_000), (1_000, "s", 90_000), (60_000, "min", 5_400_000)):
        if ms < limit:
            return f"{_short(ms, size)} {unit}"
    return f"{_short(ms, 3_600_000)} h"


def _short(ms: int, size: int) -> str:
    whole, tenth = ms // size, ms * 10 // size % 10
    return str(whole) if whole >= 10 or not tenth else f"{whole}.{tenth}"
