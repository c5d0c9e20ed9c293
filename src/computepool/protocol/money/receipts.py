"""Receipts: what was agreed, done and paid for one job, as canonical JSON with the hub's Ed25519 signature.

A receipt is self-contained: with the hub's public key, everything in it can be verified offline (`pool verify`).
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ConfigDict, Field

from computepool.protocol.tokens import b64, is_signed_by, public_key, unb64

#: Amounts, times and numbers are never negative, and fit 64 bits.
Whole = Annotated[int, Field(ge=0, le=2**63 - 1)]
FORMAT: Literal["computepool-receipt-1"] = "computepool-receipt-1"


class _Part(BaseModel):
    """Strict and without additional fields, so that what is signed is what is read."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ReceiptTransfer(_Part):
    """A complete row of the ledger, with its own hash and the previous one."""

    seq: Whole
    tx_key: str
    leg: Whole
    debit: str
    credit: str
    amount: Whole
    kind: str
    job_id: str | None
    ref: str | None
    at_ms: Whole
    previous: str  #: hash of the previous transfer in the ledger
    hash: str


class ReceiptPrices(_Part):
    """The parts of the price table that were used."""

    version: Whole
    digest: str  #: SHA-256 of the whole table, as in GET /prices/{version}
    economy: Literal["market", "time-bank", "none"]
    base: Whole
    tier_rate: Whole  #: × 100
    region_rate: Whole  #: × 100
    fee_ppm: Annotated[Whole, Field(lt=1_000_000)]
    spot_range: Annotated[Whole, Field(ge=1)]


class ReceiptRun(_Part):
    """One run that was paid for: the node and its owner, the duration and the price."""

    attempt_id: str
    report_digest: str  #: of the node's signed report
    owner: str
    node: str
    tier: str
    region: str
    prices: ReceiptPrices
    spot: Whole  #: per unit-hour
    units: Whole  #: thousandths
    price: Whole  #: per hour
    leased_at_ms: Whole
    started_at_ms: Whole
    finished_at_ms: Whole
    billed_ms: Whole
    charge: Whole
    pay: Whole
    fee: Whole


class Receipt(ReceiptRun):
    """For the accepted run and the runs that confirmed its result. Amounts in microcredits, times in milliseconds since the
    epoch by the hub's clock."""

    format: Literal["computepool-receipt-1"]
    pool: str  #: the name of the pool
    kid: str
    key: str  #: the public half of the signing key
    job_id: str
    #: jobs of its submission, whose money was set aside in one transfer
    jobs: Annotated[Whole, Field(ge=1)]
    spec_digest: str
    result_digest: str | None
    submitter: str
    accepted_at_ms: Whole
    longest_ms: Whole
    max_price: Whole
    hold: Whole
    refund: Whole
    confirmed_by: list[ReceiptRun] = []
    #: Attempts from whose checkpoints these runs resumed. Each is billed from its lease up to the checkpoint that was used,
    #: and counts as finished then.
    continued_from: list[ReceiptRun] = []
    transfers: list[ReceiptTransfer]


class SignedReceipt(_Part):
    receipt: Receipt
    signature: str


def canonical(receipt: dict[str, Any]) -> bytes:
    """The canonical text of a receipt: sorted, without spaces, in ASCII."""
    return json.dumps(receipt, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def sign(receipt: Receipt, key: Ed25519PrivateKey) -> SignedReceipt:
    return SignedReceipt(receipt=receipt, signature=b64(key.sign(canonical(receipt.model_dump(mode="json")))))


def is_signed(document: dict[str, Any], key: str) -> bool:
    """Whether exactly this document was signed with the private half of `key`. The signature must be in canonical base64."""
    signature = document["signature"]
    if b64(unb64(signature)) != signature:
        return False
    return is_signed_by(public_key(key), signature, canonical(document["receipt"]))
