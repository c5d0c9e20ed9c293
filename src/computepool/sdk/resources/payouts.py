"""`pool.payouts`: payouts of matured credits to a bank account or UPI ID."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from computepool.protocol.money import payouts as wire
from computepool.sdk.client.amounts import Credits, microcredits
from computepool.sdk.client.resource import Resource
from computepool.sdk.client.transport import Params

Payouts: TypeAlias = list[wire.PayoutView]


class PayoutApi(Resource):
    """Parameters are in credits, replies in microcredits."""

    def request(
        self, amount: Credits, *, upi: str | None = None, bank: Mapping[str, str] | None = None
    ) -> wire.PayoutView:
        """Request a payout to a UPI ID, or to a bank account (account_number, ifsc, name). Reserves the credits.

        >>> pool.payouts.request(500, upi="asha@okaxis")
        """
        fields = {"amount": microcredits(amount, what="amount"), "upi": upi, "bank": bank and dict(bank)}
        return self._post("/payouts", wire.PayoutView, wire.PayoutRequest, **fields)

    def list(self, *, limit: int = 100, everybody: bool = False, state: str | None = None) -> Payouts:
        """List payouts, newest first; `everybody` is admin only."""
        params: Params = {"all": everybody or None, "state": state}
        return list(self._each("/payouts", wire.PayoutPage, lambda page: page.payouts, limit=limit, params=params))

    def available(self) -> wire.PayoutPage:
        """The amount available for payout, the minimum payout, and the newest payout."""
        return self._transport.get("/payouts", wire.PayoutPage, params={"limit": 1})

    def get(self, payout_id: str) -> wire.PayoutView:
        return self._transport.get(f"/payouts/{payout_id}", wire.PayoutView)

    def cancel(self, payout_id: str) -> wire.PayoutView:
        """Cancel a payout that was not sent to the bank yet."""
        return self._transport.post(f"/payouts/{payout_id}/cancel", wire.PayoutView)

    # ------------------------------------------------------------ administrators
    def approve(self, payout_id: str) -> wire.PayoutView:
        return self._transport.post(f"/payouts/{payout_id}/approve", wire.PayoutView)

    def reject(self, payout_id: str, reason: str) -> wire.PayoutView:
        return self._post(f"/payouts/{payout_id}/reject", wire.PayoutView, wire.RejectRequest, reason=reason)

    def mark_paid(self, payout_id: str, reference: str) -> wire.PayoutView:
        """`reference`: the bank's reference for the transfer, from its statement."""
        return self._post(f"/payouts/{payout_id}/paid", wire.PayoutView, wire.PaidRequest, reference=reference)

    def mark_failed(self, payout_id: str, reason: str) -> wire.PayoutView:
        """Return the credits. Call this only if the bank certainly did not and will not pay."""
        return self._post(f"/payouts/{payout_id}/failed", wire.PayoutView, wire.FailedRequest, reason=reason)

    def export(self) -> str:
        """Payouts to be paid manually, as CSV for the bank."""
        return self._transport.call("GET", "/payouts/export.csv").decode()
