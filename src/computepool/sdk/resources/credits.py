"""`pool.credits` and `pool.prices`: what you have, what jobs cost and earn, receipts, and the price table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from computepool.protocol.money.credits import (
    CostView,
    CreditsView,
    Entry,
    LeaderboardView,
    PricesRequest,
    PriceTableView,
    PriceVersion,
    PriceVersions,
    StatementPage,
    Sum,
    TopUpReply,
    TopUpRequest,
)
from computepool.sdk.client.amounts import Credits, microcredits
from computepool.sdk.client.paging import pages
from computepool.sdk.client.transport import Params, Resource
from computepool.sdk.jobs.options import validate

Entries: TypeAlias = list[Entry]


class CreditApi(Resource):
    """Calling it tells what you have; amounts in replies are microcredits."""

    def __call__(self, *, account_id: str | None = None) -> CreditsView:
        """To spend, held and maturing. Admins may look at any account."""
        return self._transport.get("/credits", CreditsView, params={"account_id": account_id})

    def statement(self, *, limit: int = 100, **filters: Any) -> Entries:
        """The newest first. `filters`: kind, job_id, since_ms, until_ms, account_id."""
        found = pages(
            self._transport, "/credits/statement", StatementPage, limit=limit, params=_filters(filters)
        )
        return [entry for page in found for entry in page.entries][:limit]

    def sums(self, **filters: Any) -> list[Sum]:
        """Everything the filters let through, added up by kind."""
        params = {**_filters(filters), "sums": "true", "limit": 1}
        return self._transport.get("/credits/statement", StatementPage, params=params).sums

    def export(self, **filters: Any) -> Iterator[bytes]:
        """The whole statement as CSV, as it comes."""
        with self._transport.stream("GET", "/credits/statement.csv", params=_filters(filters)) as reply:
            yield from reply.iter_bytes()

    def why(self, job_id: str) -> CostView:
        """Where the cost of a job of yours, or the pay for one on your node, comes from."""
        return self._transport.get(f"/jobs/{job_id}/cost", CostView)

    def receipt(self, job_id: str) -> bytes:
        """The signed receipt, exactly as the hub sent it; `pool verify` checks it."""
        return self._transport.call("GET", f"/jobs/{job_id}/receipt")

    def leaderboard(self, *, by: Literal["credits", "hours"] = "credits", limit: int = 20) -> LeaderboardView:
        return self._transport.get("/credits/leaderboard", LeaderboardView, params={"by": by, "limit": limit})

    def give(
        self, account: str, amount: Credits, *, note: str | None = None, paid_in: bool = False
    ) -> TopUpReply:
        """Admins only: credits for an account, as a gift, or because the person paid them in."""
        request = validate(
            TopUpRequest,
            account=account,
            amount=microcredits(amount, what="amount"),
            source="bank" if paid_in else "promo",
            note=note,
        )
        return self._transport.post("/credits/top-ups", TopUpReply, body=request)


class PriceApi(Resource):
    def show(self, version: int | None = None) -> PriceTableView:
        """The table in force, or a former version."""
        path = "/prices" if version is None else f"/prices/{version}"
        return self._transport.get(path, PriceTableView)

    def history(self) -> list[PriceVersion]:
        """The newest first."""
        return self._transport.get("/prices/versions", PriceVersions).versions

    def change(self, request: PricesRequest) -> PriceTableView:
        """Admins only: a new version."""
        return self._transport.put("/prices", PriceTableView, body=request)


def _filters(given: dict[str, Any]) -> Params:
    unknown = given.keys() - _FILTERS
    if unknown:
        raise TypeError(f"{sorted(unknown)[0]!r} is not one of {', '.join(sorted(_FILTERS))}")
    return given


_FILTERS = frozenset({"kind", "job_id", "since_ms", "until_ms", "account_id"})
