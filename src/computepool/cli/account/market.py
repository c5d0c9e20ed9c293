"""`pool market …`: what a unit-hour costs where, and what nodes ask for and earn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from computepool.cli import output
from computepool.cli.clock import now_ms
from computepool.cli.options import Json, open_pool
from computepool.core.money.money import format_credits, round_down, round_up
from computepool.core.words import counted

if TYPE_CHECKING:
    from computepool.protocol.money.market import FloorView, NodeEarnings, ZoneMarket

app = typer.Typer()
_BARS = "▁▂▃▄▅▆▇█"
_ROWS = 24
_NODES_MAX = 1_000
_ZONES = ("ZONE", "SPOT", "1 H", "RANGE", "USED", "UNITS", "NODES", "FLOORS", "CEILINGS", "TREND")
_DEPTH = ("ZONE", "SIDE", "PRICE", "UNITS", "NOTE")
#: A price may begin with a dash; then it is refused as a price, and not as an unknown option.
_ANY_TEXT = {"ignore_unknown_options": True}


@app.callback(invoke_without_command=True)
def market(
    context: typer.Context,
    *,
    depth: Annotated[bool, typer.Option("--depth", help="Every floor and ceiling, with its units.")] = False,
    json: Json = False,
) -> None:
    """What a unit-hour (a core, or a card) costs in each zone, the fee included.

    \b
    Examples:
      pool market
      pool market --depth
      pool market history --tier rtx-4090 --region in
      pool market floor studio-3 6.50
    """
    if context.invoked_subcommand is not None:
        return
    found = open_pool().market()
    if json:
        output.print_json(found)
        return
    if depth:
        rows = [row for zone in found.zones for row in _depth(zone)]
        output.print_table(_DEPTH, rows, empty="Nobody offers anything, and nobody waits.")
        return
    output.print_table(_ZONES, map(_zone, found.zones), empty="No node is here, so there is no price.")


def _zone(zone: ZoneMarket) -> tuple[output.Cell, ...]:
    return (
        _name(zone.tier, zone.region),
        _price(zone.spot),
        _change(zone.hour_ago, zone.spot),
        f"{_price(zone.low)} - {_price(zone.high)}",
        f"{zone.utilisation_ppm // 10_000} %",
        _units(zone.capacity),
        zone.nodes,
        _range([level.floor for level in zone.floors]),
        _range([level.price for level in zone.ceilings]),
        sparkline(zone.trend),
    )


def _depth(zone: ZoneMarket) -> Iterable[tuple[output.Cell, ...]]:
    """As in an order book: who pays most first, then what is offered, from the cheapest on."""
    name = _name(zone.tier, zone.region)
    for wanted in zone.ceilings:
        price = "any" if wanted.price is None else format_credits(wanted.price)
        paying = wanted.price is None or wanted.price >= zone.spot
        yield name, "wanted", price, _units(wanted.units), "" if paying else "waits for a lower price"
    yield name, "spot", _price(zone.spot), "", f"{zone.utilisation_ppm // 10_000} % used"
    for offered in zone.floors:
        note = f"{format_credits(offered.floor)} after the fee" if offered.floor else "no minimum price set"
        if offered.price > zone.spot:
            note += ", waits for a higher price"
        yield name, "offered", _price(offered.price), _units(offered.units), note


@app.command()
def history(
    *,
    tier: Annotated[str, typer.Option(metavar="TIER", help="cpu, or a tier of GPUs.")] = "cpu",
    region: Annotated[str, typer.Option(metavar="REGION", help="in, eu, us, …; default: none.")] = "",
    since: Annotated[str, typer.Option(metavar="TIME", help="How long ago to begin: 6h, 7d.")] = "24h",
    step: Annotated[str | None, typer.Option(metavar="TIME", help="How far apart: 15m, 1h.")] = None,
    json: Json = False,
) -> None:
    """The price of one zone over time: the last, lowest and highest of each step.

    \b
    Examples:
      pool market history --region in
      pool market history --tier rtx-4090 --region eu --since 7d --step 6h
      pool market history --region in --json
    """
    from computepool.sdk.client.sizes import seconds

    length_ms = max(1, round(seconds(since, what="since") * 1000))
    step_ms = -(-length_ms // _ROWS) if step is None else max(1, round(seconds(step, what="step") * 1000))
    begin_ms = max(0, now_ms() - length_ms)
    found = open_pool().market.history(tier, region, since_ms=begin_ms, step_ms=step_ms)
    if json:
        output.print_json(found)
        return
    rows = [
        (
            output.moment(point.at_ms),
            _price(point.price),
            _price(point.low),
            _price(point.high),
            _units(point.capacity),
            _units(point.demand),
        )
        for point in found.points
    ]
    columns = ("FROM", "SPOT", "LOWEST", "HIGHEST", "CAPACITY", "DEMAND")
    output.print_table(columns, rows, empty="Nothing was recorded in that time.")
    output.note(f"{_name(found.tier, found.region)} {sparkline([point.price for point in found.points])}")


@app.command(context_settings=_ANY_TEXT)
def floor(
    node: Annotated[str | None, typer.Argument(help="A node's id or name.")] = None,
    price: Annotated[
        str | None, typer.Argument(help="Credits for a unit-hour of the node's tier, after the fee.")
    ] = None,
    *,
    default: Annotated[
        str | None,
        typer.Option("--default", metavar="PRICE", help="For all your nodes without a floor of their own."),
    ] = None,
    clear: Annotated[
        bool, typer.Option("--clear", help="No floor any more: of NODE, or the default if none is named.")
    ] = False,
    json: Json = False,
) -> None:
    """What your nodes want at least. Without anything: show the default.

    A node takes jobs of others only while its zone pays the floor or more. It never sets the price: whoever takes
    part is paid the spot price, less the fee.

    \b
    Examples:
      pool market floor studio-3 6.50
      pool market floor studio-3 --clear
      pool market floor --default 5
      pool market floor
    """
    _show(_floor(node, price, default=default, clear=clear), json=json)


def _floor(node: str | None, price: str | None, *, default: str | None, clear: bool) -> FloorView:
    if sum((price is not None, default is not None, clear)) > 1 or (node is not None and default is not None):
        raise typer.BadParameter("Say one thing: NODE PRICE, NODE --clear, --default PRICE, or --clear.")
    if node is not None and price is None and not clear:
        raise typer.BadParameter(f"Say what {node} wants: a price like 6.50, or --clear.")
    market = open_pool().market
    if node is not None:
        _check_price(price)
        return market.set_floor(open_pool().nodes.find(node).id, price)
    if default is not None or clear:
        return market.set_default_floor(default)
    return market.default_floor()


def _check_price(price: str | None) -> None:
    """Before the node is looked for: the price is what is most easily mistyped."""
    from computepool.core.money.money import parse_credits

    if price is not None:
        parse_credits(price, field="floor")


def _show(view: FloorView, *, json: bool) -> None:
    if json:
        output.print_json(view)
    else:
        output.say(view.sentence)


def earnings(
    node: Annotated[str | None, typer.Argument(help="A node's id or name; default: all of yours.")] = None,
    *,
    json: Json = False,
) -> None:
    """What your nodes earn at today's prices, and what they were really paid.

    \b
    Examples:
      pool node earnings
      pool node earnings studio-3
    """
    pool = open_pool()
    if node is None:
        ids = [mine.id for mine in pool.nodes.list(mine=True, limit=_NODES_MAX) if mine.state != "revoked"]
    else:
        ids = [pool.nodes.find(node).id]
    found = [pool.market.earnings(node_id) for node_id in ids]
    if json:
        output.print_json(found if node is None else found[0])
    elif node is None:
        columns = ("NODE", "AN HOUR", "A DAY", "FLOOR", "24 H", "7 D", "30 D", "STATUS")
        output.print_table(columns, map(_earning, found), empty="You lend no node: pool node start")
    else:
        output.print_fields(_fields(found[0]))


def _earning(found: NodeEarnings) -> tuple[output.Cell, ...]:
    return (
        found.name,
        _income(found.sales[0].per_hour),
        _income(found.sales[0].per_day),
        "" if found.floor is None else format_credits(found.floor),
        *(_income(part.amount) for part in found.past),
        found.sentence,
    )


def _fields(found: NodeEarnings) -> list[tuple[str, output.Cell]]:
    """An estimate for each kind of unit, and what the ledger says."""
    fields: list[tuple[str, output.Cell]] = [("node", found.name), ("", found.sentence)]
    for sale in found.sales:
        what = f"{_units(sale.units)} × {_name(sale.tier, sale.region)}"
        busy = f"{sale.utilisation_ppm // 10_000} %"
        fields += [
            (f"{what}, an hour", f"{_income(sale.per_hour)} fully busy, at {_price(sale.spot)} a unit"),
            (f"{what}, a day", f"{_income(sale.per_day)} as busy as its zone is now ({busy})"),
        ]
    fields.append(("floor", floor_words(found.floor, is_default=found.floor_is_default)))
    for part in found.past:
        jobs = counted(part.jobs, "job")
        days = "24 hours" if part.days == 1 else f"{part.days} days"
        fields.append((f"paid in {days}", f"{format_credits(part.amount)} for {jobs}"))
    return fields


def _price(amount: int) -> str:
    """Rounded up: a ceiling of what is shown is enough."""
    return format_credits(round_up(amount))


def _income(amount: int) -> str:
    return format_credits(round_down(amount))


def _name(tier: str, region: str) -> str:
    return f"{tier}/{region or 'anywhere'}"


def _units(thousandths: int) -> str:
    return f"{thousandths / 1000:g}"


def _range(prices: Sequence[int | None]) -> str:
    """The lowest and the highest; whoever pays anything has none."""
    stated = sorted(price for price in prices if price is not None)
    if not stated:
        return "any" if prices else ""
    low, high = _price(stated[0]), _price(stated[-1])
    return low if low == high else f"{low} - {high}"


def _change(before: int, after: int) -> str:
    if not before:
        return ""
    tenths = (after - before) * 1000 // before
    return f"{tenths / 10:+.1f} %"


def sparkline(prices: Sequence[int]) -> str:
    if not prices:
        return ""
    low, high = min(prices), max(prices)
    last = len(_BARS) - 1
    return "".join(_BARS[(price - low) * last // (high - low) if high > low else 0] for price in prices)


def floor_words(floor: int | None, *, is_default: bool) -> str:
    if floor is None:
        return "No minimum price set"
    return f"{format_credits(floor)}{' (your default)' if is_default else ''}"
