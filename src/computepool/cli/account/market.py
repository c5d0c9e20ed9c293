"""`pool market …`: spot prices by zone, price floors and earnings of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

from typer import Argument, BadParameter, Context, Option, Typer

from computepool.cli import output
from computepool.cli.options import open_pool
from computepool.core.money.money import format_credits, parse_credits, round_down, round_up
from computepool.core.words import pluralize
from computepool.sdk.client.sizes import seconds
from computepool.sdk.clock import now_ms

if TYPE_CHECKING:
    from computepool.protocol.money.market import FloorView, NodeEarnings, Sale, ZoneMarket

app = Typer()
_BARS = "▁▂▃▄▅▆▇█"
_ROWS = 24
_NODES_MAX = 1_000
_ZONES = ("ZONE", "SPOT", "1 H", "RANGE", "USED", "UNITS", "NODES", "FLOORS", "CEILINGS", "TREND")
_DEPTH = ("ZONE", "SIDE", "PRICE", "UNITS", "NOTE")
_EARNINGS = ("NODE", "FULL HOUR", "ZONE USE", "PER DAY", "FLOOR", "24 H", "7 D", "30 D", "STATUS")
_EARNINGS_NOTE = "FULL HOUR: with all its cores or GPUs in use. PER DAY: at the current use of its zone."
#: So that a negative price is refused as a price instead of as an unknown option.
_ANY_TEXT = {"ignore_unknown_options": True}


@app.callback(invoke_without_command=True)
def market(
    context: Context,
    *,
    depth: Annotated[
        bool, Option("--depth", help="Show the order book: every floor and ceiling with its units.")
    ] = False,
) -> None:
    """Show spot prices, and set price floors for your nodes.

    A price is for a unit-hour: one core or one GPU. It includes the fee.

    Examples:
      pool market
      pool market --depth
      pool market history --tier rtx-4090 --region in
      pool market floor studio-3 6.50
    """
    if context.invoked_subcommand is not None:
        return
    found = open_pool().market()
    if depth:
        rows = [row for zone in found.zones for row in _depth(zone)]
        output.show_table(found, _DEPTH, rows, empty="No offers and no demand.")
    else:
        empty = "No nodes are online, so there are no prices."
        output.show_table(found, _ZONES, map(_zone, found.zones), empty=empty)


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
    """Rows of an order book: demand from the highest price down, then offers from the lowest price up."""
    name = _name(zone.tier, zone.region)
    for level in zone.ceilings:
        price = "any" if level.price is None else format_credits(level.price)
        paying = level.price is None or level.price >= zone.spot
        yield name, "demand", price, _units(level.units), "" if paying else "waiting for a lower price"
    yield name, "spot", _price(zone.spot), "", f"{zone.utilisation_ppm // 10_000} % used"
    for offered in zone.floors:
        note = f"{format_credits(offered.floor)} after the fee" if offered.floor else "no minimum price set"
        if offered.price > zone.spot:
            note += ", waiting for a higher price"
        yield name, "offered", _price(offered.price), _units(offered.units), note


@app.command()
def history(
    *,
    tier: Annotated[str, Option(metavar="TIER", help="cpu, or a GPU tier.")] = "cpu",
    region: Annotated[str, Option(metavar="REGION", help="in, eu, us, … Default: none.")] = "",
    since: Annotated[str, Option(metavar="TIME", help="How far back: 6h, 7d.")] = "24h",
    step: Annotated[str | None, Option(metavar="TIME", help="Interval: 15m, 1h.")] = None,
) -> None:
    """Show the price of one zone over time: last, lowest and highest per interval.

    Examples:
      pool market history --region in
      pool market history --tier rtx-4090 --region eu --since 7d --step 6h
      pool market history --region in --json
    """
    length_ms = max(1, round(seconds(since, what="since") * 1000))
    step_ms = -(-length_ms // _ROWS) if step is None else max(1, round(seconds(step, what="step") * 1000))
    begin_ms = max(0, now_ms() - length_ms)
    found = open_pool().market.history(tier, region, since=begin_ms / 1000, step=step_ms / 1000)
    if output.print_json(found):
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
    output.print_table(columns, rows, empty="No prices were recorded in that period.")
    output.note(f"{_name(found.tier, found.region)} {sparkline([point.price for point in found.points])}")


@app.command(context_settings=_ANY_TEXT)
def floor(
    node: Annotated[str | None, Argument(help="Node ID or name.")] = None,
    price: Annotated[
        str | None, Argument(help="Credits per unit-hour of the node's tier, after the fee. Default: show the floor.")
    ] = None,
    *,
    default: Annotated[
        str | None,
        Option("--default", metavar="PRICE", help="Set the default for your nodes without a floor of their own."),
    ] = None,
    clear: Annotated[
        bool, Option("--clear", help="Remove the floor of NODE, or the default if no node is given.")
    ] = False,
) -> None:
    """Show or set price floors: the lowest price at which your nodes take jobs of others.

    Without a price, shows the floor of NODE, or your default floor. A floor does not set the price: every node is paid
    the spot price, less the fee.

    Examples:
      pool market floor studio-3 6.50
      pool market floor studio-3
      pool market floor studio-3 --clear
      pool market floor --default 5
      pool market floor
    """
    if node is not None and price is None and not (default or clear):
        pool = open_pool()
        found = pool.market.earnings(pool.nodes.find(node).id)
        output.show(
            found.model_dump(include={"node_id", "name", "floor", "floor_is_default"}),
            f"{found.name}: {floor_words(found.floor, is_default=found.floor_is_default)}",
        )
        return
    view = _set_floor(node, price, default=default, clear=clear)
    output.show(view, view.sentence)


def _set_floor(node: str | None, price: str | None, *, default: str | None, clear: bool) -> FloorView:
    if sum((price is not None, default is not None, clear)) > 1 or (node is not None and default is not None):
        raise BadParameter("Use one of: NODE, NODE PRICE, NODE --clear, --default PRICE, or --clear.")
    pool = open_pool()
    if node is not None:
        if price is not None:  # before looking up the node, since a price is easily mistyped
            parse_credits(price, field="floor")
        return pool.market.set_floor(pool.nodes.find(node).id, price)
    if default is not None or clear:
        return pool.market.set_default_floor(default)
    return pool.market.default_floor()


def earnings(node: Annotated[str | None, Argument(help="Node ID or name. Default: all your nodes.")] = None) -> None:
    """Show what your nodes would earn at current prices, and what they were paid.

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
    if output.print_json(found if node is None else found[0]):
        return
    if node is None:
        empty = "You have no nodes. Add this machine: pool node start"
        output.print_table(_EARNINGS, map(_earnings_row, found), empty=empty)
        if found:
            output.note(_EARNINGS_NOTE)
    else:
        output.print_fields(_fields(found[0]))


def _earnings_row(found: NodeEarnings) -> tuple[output.Cell, ...]:
    sale = found.sales[0]
    return (
        found.name,
        _income(sale.per_hour),
        _use(sale),
        _income(sale.per_day),
        "" if found.floor is None else format_credits(found.floor),
        *(_income(part.amount) for part in found.past),
        found.sentence,
    )


def _fields(found: NodeEarnings) -> list[tuple[str, output.Cell]]:
    """An estimate for each kind of unit, and past earnings."""
    fields: list[tuple[str, output.Cell]] = [("node", found.name), ("", found.sentence)]
    for sale in found.sales:
        what = f"{_units(sale.units)} × {_name(sale.tier, sale.region)}"
        fields += [
            (f"{what}, per hour", f"{_income(sale.per_hour)} when fully used, at {_price(sale.spot)} per unit"),
            (f"{what}, per day", f"{_income(sale.per_day)} at the current use of its zone ({_use(sale)})"),
        ]
    fields.append(("floor", floor_words(found.floor, is_default=found.floor_is_default)))
    for part in found.past:
        jobs = pluralize(part.jobs, "job")
        days = "24 hours" if part.days == 1 else f"{part.days} days"
        fields.append((f"paid in {days}", f"{format_credits(part.amount)} for {jobs}"))
    return fields


def _use(sale: Sale) -> str:
    return f"{sale.utilisation_ppm // 10_000} %"


def _price(amount: int) -> str:
    """Rounded up, so that a price limit of the amount shown is sufficient."""
    return format_credits(round_up(amount))


def _income(amount: int) -> str:
    return format_credits(round_down(amount))


def _name(tier: str, region: str) -> str:
    return f"{tier}/{region}" if region else f"{tier} (no region)"


def _units(thousandths: int) -> str:
    return f"{thousandths / 1000:g}"


def _range(prices: Sequence[int | None]) -> str:
    """The lowest and highest price; None stands for any price."""
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
