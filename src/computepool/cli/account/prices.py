"""`pool prices …`: the price table, its history, and new versions."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Context, Option, Typer

from computepool.cli import output
from computepool.cli.options import open_pool, pairs
from computepool.core.errors import BadRequest
from computepool.core.money import bills
from computepool.core.money.money import format_credits
from computepool.sdk.client.amounts import microcredits
from computepool.sdk.client.config import readable_file

if TYPE_CHECKING:
    from computepool.protocol.money.credits import PriceTableView

app = Typer()
_EDITED = ("base", "tiers", "regions", "fee_ppm", "spot_range", "payout_min")


@app.callback(invoke_without_command=True)
def newest(ctx: Context) -> None:
    """Show the current price table.

    Examples:
      pool prices
      pool prices set --base 12
    """
    if ctx.invoked_subcommand is None:
        _print(open_pool().prices.show())


@app.command()
def show(version: Annotated[int | None, Argument(metavar="VERSION", help="An earlier version.")] = None) -> None:
    """Show the current price table, or an earlier version.

    Examples:
      pool prices show
      pool prices show 3 --json > prices.json
    """
    _print(open_pool().prices.show(version))


def _print(table: PriceTableView) -> None:
    if output.print_json(table):
        return
    output.print_fields(
        [
            ("version", table.version),
            ("economy", table.economy),
            ("base", f"{format_credits(table.base)} per unit-hour"),
            ("fee", f"{bills.percentage(table.fee_ppm)}, at most {bills.percentage(table.fee_max_ppm)}"),
            ("spot price", f"from 1/{table.spot_range} to {table.spot_range} times the reference"),
            ("minimum payout", format_credits(table.payout_min)),
            ("digest", table.digest),
        ]
    )
    rows = [("tier", name, bills.rate(rate)) for name, rate in sorted(table.tiers.items(), key=lambda one: one[1])]
    rows += [("region", name, bills.rate(rate)) for name, rate in sorted(table.regions.items())]
    output.print_table(("", "NAME", "RATE"), rows)


@app.command()
def history() -> None:
    """List all versions of the price table, newest first.

    Examples:
      pool prices history
    """
    versions = open_pool().prices.history()
    rows = [(one.version, output.moment(one.created_at_ms), one.created_by, one.digest[:12]) for one in versions]
    output.show_table(versions, ("VERSION", "SINCE", "BY", "DIGEST"), rows, empty="No prices.")


@app.command("set")
def set_prices(
    *,
    file: Annotated[
        Path | None, Option(metavar="FILE", help="A complete table, as printed by `pool prices show --json`.")
    ] = None,
    base: Annotated[
        str | None, Option(metavar="CREDITS", help="Price of one unit-hour at tier and region rates of 1.00.")
    ] = None,
    tier: Annotated[
        list[str] | None, Option(metavar="TIER=RATE", help="Tier rate, such as rtx-4090=3.1; repeatable.")
    ] = None,
    region: Annotated[
        list[str] | None, Option(metavar="REGION=RATE", help="Region rate, such as in=0.7; repeatable.")
    ] = None,
    fee: Annotated[
        str | None, Option(metavar="PERCENT", help="Platform fee: up to 20%, unless the hub allows more.")
    ] = None,
    payout_min: Annotated[str | None, Option(metavar="CREDITS", help="Minimum payout.")] = None,
) -> None:
    """Publish a new version of the price table (admin only). Running jobs keep their prices.

    Examples:
      pool prices set --base 12 --tier rtx-4090=3.1 --region in=0.7 --fee 20%
      pool prices set --file prices.json
    """
    from computepool.protocol.money.credits import PricesRequest
    from computepool.sdk.client.resource import validate

    prices = open_pool().prices
    table = _editable(prices.show().model_dump()) if file is None else _from_file(file)
    if base is not None:
        table["base"] = microcredits(base, what="--base")
    if payout_min is not None:
        table["payout_min"] = microcredits(payout_min, what="--payout-min")
    if fee is not None:
        problem = f"{fee!r} is not a percentage; use a value like 20%."
        percent = fee.strip().removesuffix("%").strip()
        table["fee_ppm"] = _fixed_point(percent, digits=2, decimals=4, problem=problem, what="--fee")
    table["tiers"] = {**table["tiers"], **_rates(tier, what="--tier")}
    table["regions"] = {**table["regions"], **_rates(region, what="--region")}
    changed = prices.change(validate(PricesRequest, **table))
    output.show(changed, f"Version {changed.version} of the price table is now in effect.")


def _editable(whole: dict[str, Any]) -> dict[str, Any]:
    return {name: whole[name] for name in _EDITED} | {"based_on": whole.get("based_on", whole.get("version"))}


def _from_file(file: Path) -> dict[str, Any]:
    """The table of a file, based on the version that it was printed from."""
    try:
        return _editable(json_text.loads(readable_file(file, what="--file").read_text()))
    except KeyError as error:
        raise BadRequest(f"{file} has no {error.args[0]}; use `pool prices show --json` as a template.") from None
    except (ValueError, AttributeError, TypeError):
        raise BadRequest(f"{file} is not a price table in JSON.") from None


def _rates(given: list[str] | None, *, what: str) -> dict[str, int]:
    found = {}
    for name, text in pairs(given, what=what).items():
        problem = f"{text!r} is not a rate; use a number like 3 or 0.75."
        found[name.lower()] = _fixed_point(text, digits=4, decimals=2, problem=problem, what=what)
    return found


def _fixed_point(text: str, *, digits: int, decimals: int, problem: str, what: str) -> int:
    """The number times 10 to the power of `decimals`."""
    whole, _, part = text.partition(".")
    if not (whole.isdecimal() and (part.isdecimal() or not part) and len(whole) <= digits and len(part) <= decimals):
        raise BadParameter(problem, param_hint=what)
    return int(whole + part.ljust(decimals, "0"))
