"""`pool quote`: the price of a script or command, eligible nodes, and expected finish. Submits nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from computepool.cli import output
from computepool.cli.options import REST, accepts, checks, merge, open_pool, requirements, terms
from computepool.core.money.money import format_credits, free_or_reserved

if TYPE_CHECKING:
    from computepool.protocol.money.credits import QuoteView
    from computepool.sdk import JobOptions, Submitter


Script = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="Script; its arguments follow, or come after --.")
]


@accepts(needs=requirements, more=terms, trust=checks)
def quote(
    ctx: typer.Context,
    file: Script = None,
    *,
    slices: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=1_000_000, help="Quote for this many slices.")
    ] = None,
    needs: JobOptions,
    more: JobOptions,
    trust: JobOptions,
) -> None:
    """Show what a job would cost and when it would finish, without submitting it. Takes the options of `pool submit`.

    \b
    Examples:
      pool quote train.py --vram 16 --timeout 2h --max-price 40
      pool quote --cores 4 --slices 100 --budget 250 -- ffmpeg -i in.mp4 outputs/out.webm
      pool quote --type ml
    """
    work = open_pool().options(**merge(needs, more, trust))
    note_dependencies(work, file)
    print_quote(ask(work, file, ctx.meta.get(REST, []), items=slices or 1))


def note_dependencies(work: Submitter, file: Path | None) -> None:
    if file is not None and not output.as_json() and (sentence := work.dependencies(file).sentence):
        output.note(sentence)


def ask(work: Submitter, file: Path | None, rest: list[str], *, items: int) -> QuoteView:
    """Of a script, of a command, or, where neither is named, of anything with these requirements."""
    what: Any = file if file is not None else (rest or None)
    return work.quote(what, rest if file is not None else (), items=items)


def print_quote(quote: QuoteView) -> None:
    if output.printed_json(quote):
        return
    for sentence in quote.sentences:
        output.write_line(sentence)
    rows = [
        (
            zone.tier,
            zone.region,
            format_credits(zone.spot),
            format_credits(zone.price),
            zone.nodes_now,
            zone.nodes_able,
        )
        for zone in quote.zones
    ]
    if rows:
        output.print_table(("TIER", "REGION", "SPOT", "PRICE/H", "NODES NOW", "NODES ABLE"), rows, empty="")


def short(quote: QuoteView) -> str:
    """One line, for somebody who is about to wait anyway."""
    if not quote.hold_total and not quote.price_high:
        return "Price: free."
    if quote.own_node and not quote.price_high:
        return free_or_reserved(quote.hold_total)
    now = (
        "no suitable node is free now"
        if quote.nodes_able
        else "unknown, because no connected node can run it"
    )
    if quote.price_low is not None and quote.price_high is not None:
        low, high = format_credits(quote.price_low), format_credits(quote.price_high)
        now = f"{high} credits per hour now" if low == high else f"{low} to {high} credits per hour now"
    if quote.nodes_network is not None:
        now += f", on one of {quote.nodes_network} nodes that allow network access"
    if quote.own_node:
        return f"Price: {now}. {free_or_reserved(quote.hold_total)}"
    return f"Price: {now}. {format_credits(quote.hold_total)} credits are put on hold; what is not used is refunded."
