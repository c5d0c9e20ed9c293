"""`pool.payouts`: matured credits on their way to a bank account or a UPI id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from computepool.protocol.money.payouts import (
    FailedRequest,
    PaidRequest,
    PayoutPage,
    PayoutRequest,
    PayoutView,
    RejectRequest,
)
from computepool.sdk.client.amounts import Credits, microcredits
from computepool.sdk.client.paging import pages
from computepool.sdk.client.transport import Params, Transport
from computepool.sdk.jobs.options import validate

Payouts: TypeAlias = list[PayoutView]


class PayoutApi:
    """Amounts are given in credits; those in replies are microcredits."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def request(
        self, amount: Credits, *, upi: str | None = None, bank: Mapping[str, str] | None = None
    ) -> PayoutView:
        """To a UPI id, or to a bank account: account_number, ifsc and name. The money is set aside at once.

        >>> pool.payouts.request(500, upi="asha@okaxis")
        """
        request = validate(
            PayoutRequest,
            amount=microcredits(amount, what="amount"),
            upi=upi,
            bank=None if bank is None else dict(bank),
        )
        return self._transport.post("/payouts", PayoutView, body=request)

    def list(self, *, limit: int = 100, everybody: bool = False, state: str | None = None) -> Payouts:
        """The newest first; `everybody` is for administrators."""
        params = _params(everybody=everybody, state=state)
        found = pages(self._transport, "/payouts", PayoutPage, limit=limit, params=params)
        return [payout for page in found for payout in page.payouts][:limit]

    def available(self) -> PayoutPage:
        """What can be paid out now, and the least that one payout may be; with the newest payout."""
        return self._transport.get("/payouts", PayoutPage, params={"limit": 1})

    def get(self, payout_id: str) -> PayoutView:
        return self._transport.get(f"/payouts/{payout_id}", PayoutView)

    def cancel(self, payout_id: str) -> PayoutView:
        """Before the bank has it."""
        return self._transport.post(f"/payouts/{payout_id}/cancel", PayoutView)

    # ------------------------------------------------------------ administrators
    def approve(self, payout_id: str) -> PayoutView:
        return self._transport.post(f"/payouts/{payout_id}/approve", PayoutView)

    def reject(self, payout_id: str, reason: str) -> PayoutView:
        request = validate(RejectRequest, reason=reason)
        return self._transport.post(f"/payouts/{payout_id}/reject", PayoutView, body=request)

    def mark_paid(self, payout_id: str, reference: str) -> PayoutView:
        """`reference`: the bank's number for the transfer, from its statement."""
        request = validate(PaidRequest, reference=reference)
        return self._transport.post(f"/payouts/{payout_id}/paid", PayoutView, body=request)

    def mark_failed(self, payout_id: str, reason: str) -> PayoutView:
        """Only when it is certain that the bank has not paid it and will not: the money goes back."""
        request = validate(FailedRequest, reason=reason)
        return self._transport.post(f"/payouts/{payout_id}/failed", PayoutView, body=request)

    def export(self) -> str:
        """What has to be paid by hand, as CSV for the bank."""
        return self._transport.call("GET", "/payouts/export.csv").decode()


def _params(*, everybody: bool, state: str | None) -> Params:
    return {"all": "true" if everybody else None, "state": state}
