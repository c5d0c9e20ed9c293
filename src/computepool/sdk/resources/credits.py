"""`pool.credits` and `pool.prices`: balance, costs and earnings of jobs, receipts, and the price table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from computepool.protocol.money import credits as wire
from computepool.sdk.client.amounts import Credits, microcredits
from computepool.sdk.client.resource import Resource
from computepool.sdk.client.transport import Params

Entries: TypeAlias = list[wire.Entry]


class CreditApi(Resource):
    """Amounts in replies are microcredits."""

    def __call__(self, *, account_id: str | None = None) -> wire.CreditsView:
        """Your balance: available, held and maturing. `account_id`: another account (admin only)."""
        return self._transport.get("/credits", wire.CreditsView, params={"account_id": account_id})

    def statement(self, *, limit: int = 100, **filters: Any) -> Entries:
        """List transfers, newest first. `filters`: kind, job_id, since_ms, until_ms, account_id."""
        params = _filters(filters)
        return list(
            self._each("/credits/statement", wire.StatementPage, lambda page: page.entries, limit=limit, params=params)
        )

    def sums(self, **filters: Any) -> list[wire.Sum]:
        """Totals by kind of all transfers that match the filters."""
        params = {**_filters(filters), "sums": True, "limit": 1}
        return self._transport.get("/credits/statement", wire.StatementPage, params=params).sums

    def export(self, **filters: Any) -> Iterator[bytes]:
        """Stream the whole statement as CSV."""
        with self._transport.stream("GET", "/credits/statement.csv", params=_filters(filters)) as reply:
            yield from reply.iter_bytes()

    def why(self, job_id: str) -> wire.CostView:
        """Explain the cost of one of your jobs, or the pay for a job on your node."""
        return self._transport.get(f"/jobs/{job_id}/cost", wire.CostView)

    def receipt(self, job_id: str) -> bytes:
        """The signed receipt, exactly as sent by the hub; `pool verify` checks it."""
        return self._transport.call("GET", f"/jobs/{job_id}/receipt")

    def leaderboard(self, *, by: Literal["credits", "hours"] = "credits", limit: int = 20) -> wire.LeaderboardView:
        return self._transport.get("/credits/leaderboard", wire.LeaderboardView, params={"by": by, "limit": limit})

    def give(self, account: str, amount: Credits, *, note: str | None = None, paid_in: bool = False) -> wire.TopUpReply:
        """Give an account credits, as a gift or, with `paid_in`, as a recorded payment (admin only)."""
        fields = {"amount": microcredits(amount, what="amount"), "source": "bank" if paid_in else "promo", "note": note}
        return self._post("/credits/top-ups", wire.TopUpReply, wire.TopUpRequest, account=account, **fields)


class PriceApi(Resource):
    def show(self, version: int | None = None) -> wire.PriceTableView:
        """The current price table, or an earlier version."""
        path = "/prices" if version is None else f"/prices/{version}"
        return self._transport.get(path, wire.PriceTableView)

    def history(self) -> list[wire.PriceVersion]:
        """All versions, newest first."""
        return self._transport.get("/prices/versions", wire.PriceVersions).versions

    def change(self, request: wire.PricesRequest) -> wire.PriceTableView:
        """Publish a new version (admin only)."""
        return self._transport.put("/prices", wire.PriceTableView, body=request)


def _filters(given: dict[str, Any]) -> Params:
    unknown = given.keys() - _FILTERS
    if unknown:
        raise TypeError(f"{sorted(unknown)[0]!r} is not one of {', '.join(sorted(_FILTERS))}")
    return given


_FILTERS = frozenset({"kind", "job_id", "since_ms", "until_ms", "account_id"})
