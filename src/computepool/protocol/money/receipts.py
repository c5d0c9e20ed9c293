"""Receipts: what was agreed, done and paid for one job, as canonical JSON under the hub's Ed25519 signature.

A receipt stands alone: with the hub's public key everything in it can be computed again, offline (`pool verify`).
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ConfigDict, Field

from computepool.protocol.tokens import b64, public_key, signed_by, unb64

#: Amounts, times and numbers are never below zero, and always 64 bits.
Whole = Annotated[int, Field(ge=0, le=2**63 - 1)]
FORMAT: Literal["computepool-receipt-1"] = "computepool-receipt-1"


class _Part(BaseModel):
    """Nothing may be added, and no number may come as a text: what is signed is what is read."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ReceiptTransfer(_Part):
    """A row of the ledger, whole, with the hash before it and its own."""

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
    previous: str  #: hash of the transfer before it in the ledger
    hash: str


class ReceiptPrices(_Part):
    """What was used of the price table."""

    version: Whole
    digest: str  #: SHA-256 of the whole table, as GET /prices/{version} tells it
    economy: Literal["market", "time-bank", "none"]
    base: Whole
    tier_rate: Whole  #: × 100
    region_rate: Whole  #: × 100
    fee_ppm: Annotated[Whole, Field(lt=1_000_000)]
    spot_range: Annotated[Whole, Field(ge=1)]


class ReceiptRun(_Part):
    """One run that was paid for: on whose node, for how long, at which price."""

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
    """Of the accepted run, and of those that confirmed its result. Amounts in microcredits, times in milliseconds since
    the epoch by the hub's clock."""

    format: Literal["computepool-receipt-1"]
    pool: str  #: the hub's name for it
    kid: str
    key: str  #: the public half of the key that signed
    job_id: str
    #: of the submission it came with; its money was set aside in one transfer
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
    #: Attempts whose checkpoints these runs went on from, each up to the one that was used: it is billed from its
    #: lease, and counts as finished when what is billed was over.
    continued_from: list[ReceiptRun] = []
    transfers: list[ReceiptTransfer]


class SignedReceipt(_Part):
    receipt: Receipt
    signature: str


def canonical(receipt: dict[str, Any]) -> bytes:
    """The one text of a receipt: sorted, without spaces, in ASCII."""
    return json.dumps(receipt, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def sign(receipt: Receipt, key: Ed25519PrivateKey) -> SignedReceipt:
    return SignedReceipt(receipt=receipt, signature=b64(key.sign(canonical(receipt.model_dump(mode="json")))))


def is_signed(document: dict[str, Any], key: str) -> bool:
    """Whether this very document was signed with the private half of `key`. Only the usual spelling counts."""
    signature = document["signature"]
    if b64(unb64(signature)) != signature:
        return False
    return signed_by(public_key(key), signature, canonical(document["receipt"]))
