"""Credits, statements, costs, quotes and price tables as they cross the wire. Amounts are whole microcredits."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from computepool.core.jobs.lifecycle import JobKind, JobState
from computepool.core.money.money import AMOUNT_MAX, CREDIT
from computepool.protocol.base import Digest, Micro, Name, NewName, Page, PositiveMicro, Reply, Request, Tag
from computepool.protocol.jobs.checks import VerifyText, check_one_way
from computepool.protocol.jobs.jobs import TIMEOUT_MAX_S, Needs, NetTargets

#: Jobs that one quote may be for; more than one submission may carry.
QUOTE_ITEMS_MAX = 1_000_000
RATES_MAX = 1_000

TierName = Annotated[str, StringConstraints(max_length=64, pattern=r"^[a-z0-9][a-z0-9._-]*$")]
RegionName = Annotated[str, StringConstraints(max_length=32, pattern=r"^[a-z][a-z-]*$")]
Hundredths = Annotated[int, Field(strict=True)]


class CreditsView(Reply):
    """What an account has."""

    account_id: str
    economy: str  #: market, time-bank or none
    available: int  #: to spend now
    withdrawable: int  #: of it, what may be paid out
    held: int  #: set aside for unfinished jobs
    maturing: int  #: earned, and not yet to spend
    unconfirmed: int = 0  #: of it, what waits until somebody else has confirmed the result
    matures_next: int = 0  #: of it, what becomes available first
    matures_at_ms: int | None = None  #: and when
    holdback_ms: int  #: how long earnings mature


class Entry(Reply):
    """One transfer, as one of its two sides sees it."""

    seq: int
    at_ms: int
    kind: str
    amount: int
    change: int  #: of all that the account has; 0 where it only moves between its own purses
    available_change: int  #: of what it can spend
    source: str  #: available, held, maturing, earned, fees, promotion, bank, payout or another account
    target: str
    job_id: str | None = None
    ref: str | None = None  #: an attempt, a payout, an operator's words
    tx_key: str
    text: str  #: one sentence


class Sum(Reply):
    """All transfers of one kind."""

    kind: str
    transfers: int
    moved: int
    gained: int
    lost: int


class StatementPage(Page):
    entries: list[Entry]
    sums: list[Sum] = []  #: of everything that the filters let through; only when asked for


class CostLine(Reply):
    """One factor or part of a bill."""

    label: str
    amount: int | None = None  #: microcredits, where it is money
    text: str


class CostView(Reply):
    """Where the cost of a job, or the pay for it, comes from. What is not the caller's business is null."""

    job_id: str
    state: JobState
    role: Literal["submitter", "owner"]
    settled: bool
    attempt_id: str | None = None
    node_name: str | None = None
    tier: str | None = None
    region: str | None = None
    price_version: int | None = None
    base: int | None = None  #: for one unit-hour at 1.00 × 1.00
    tier_rate: int | None = None  #: × 100
    region_rate: int | None = None  #: × 100
    reference: int | None = None  #: per unit-hour
    spot: int | None = None  #: per unit-hour, when it was placed
    units: int | None = None  #: thousandths of cores or cards
    price: int | None = None  #: per hour, for the whole job
    billed_ms: int | None = None
    charge: int | None = None
    fee_ppm: int | None = None
    fee: int | None = None
    pay: int | None = None
    max_price: int | None = None
    hold: int | None = None
    refund: int | None = None
    total: int | None = None  #: of all runs; the other numbers are of one
    so_far: int | None = None  #: what the run that goes on would cost if it succeeded now; null: nothing runs
    runs: int | None = None  #: that were paid for
    lines: list[CostLine] = []
    sentence: str


class Leader(Reply):
    rank: int
    name: str
    ran_ms: int  #: how long jobs ran there, or were run
    jobs: int
    credits: int  #: earned after the fee, or paid including it


class LeaderboardView(Reply):
    since_ms: int
    by: Literal["credits", "hours"]
    lenders: list[Leader]
    borrowers: list[Leader]


class TopUpRequest(Request):
    """Credits for an account, by an operator."""

    account: Name  #: its name or id
    amount: PositiveMicro
    source: Literal["bank", "promo"] = "promo"  #: bank: the person paid it in
    note: NewName | None = None  #: appears on the account's statement


class TopUpReply(Reply):
    id: str
    account_id: str
    name: str
    amount: int
    source: str
    available: int  #: what the account can spend now
    #: nothing was given yet: it waits for a second administrator under this id
    approval_id: str | None = None


# prices


class PriceTableView(Reply):
    """Everything a price is made of. Rates are hundredths: 300 is 3.00."""

    version: int
    economy: str
    base: int
    tiers: dict[str, int]
    regions: dict[str, int]  #: any other region: 100
    fee_ppm: int
    fee_max_ppm: int = 200_000  #: the highest fee that this hub takes; a setting, no part of the table
    spot_range: int
    payout_min: int
    digest: str  #: SHA-256 of the table's canonical text; receipts name it
    created_by: str = ""
    created_at_ms: int = 0


class PricesRequest(Request):
    """A whole new table, made from version `based_on`; refused when that is no longer the newest."""

    based_on: int = Field(strict=True, ge=1)
    base: Micro
    tiers: dict[TierName, Hundredths] = Field(max_length=RATES_MAX)
    regions: dict[RegionName, Hundredths] = Field(max_length=RATES_MAX)
    fee_ppm: int = Field(strict=True)
    spot_range: int = Field(strict=True)
    payout_min: int = Field(strict=True, ge=CREDIT, le=AMOUNT_MAX)


class PriceVersion(Reply):
    version: int
    created_by: str
    created_at_ms: int
    digest: str


class PriceVersions(Reply):
    """The newest first."""

    versions: list[PriceVersion]


# quotes


class QuoteRequest(Request):
    needs: Needs = Needs()
    kind: JobKind | None = None
    timeout_s: float = Field(default=3600, gt=0, le=TIMEOUT_MAX_S)
    items: int = Field(default=1, strict=True, ge=1, le=QUOTE_ITEMS_MAX)
    max_price: Micro | None = None  #: per hour and job
    budget: PositiveMicro | None = None  #: for all items together
    net: NetTargets = []  #: hosts it shall reach
    labels: list[Tag] = Field(default=[], max_length=32)
    name: Name | None = None  #: for the history: how long did jobs of this name run?
    spec_digest: Digest | None = None  #: the same, more exactly
    verify: VerifyText | None = None  #: as for a submission
    confidence: float | None = Field(default=None, ge=0.5, lt=1)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        check_one_way(self.verify, self.confidence)
        return self


class Estimate(Reply):
    """Half, and nine tenths, of what history knows took no longer. Null: unknown, and `text` says why."""

    p50_ms: int | None = None
    p90_ms: int | None = None
    samples: int = 0
    text: str


class ZoneOffer(Reply):
    tier: str
    region: str
    spot: int  #: per unit-hour
    units: int  #: thousandths
    price: int  #: per hour for the job; 0: your own nodes
    nodes_now: int
    nodes_able: int


class QuoteView(Reply):
    """What a submission would cost, take and bring, as things stand."""

    economy: str
    price_version: int
    items: int
    price_low: int | None = None  #: per hour and job, now; null: no connected node could run it
    price_high: int | None = None
    max_price: int  #: the ceiling that would be used
    hold_each: int  #: the most that one job can cost
    verify: str = "none"
    runs: int = 1  #: how often one job may have to be run, and paid for, until its result is believed
    hold_total: int
    own_node: bool = False  #: a node of yours could run it, for nothing
    available: int
    affordable: bool
    missing: int = 0
    lasts_ms: int  #: how long one job may run at the highest price, by its time limit and its money
    nodes: int
    nodes_now: int
    nodes_able: int
    nodes_network: int | None = None  #: nodes that take jobs with network; null: the job lists no hosts
    nodes_python: int | None = None  #: nodes with the Python version that it needs; null: it needs none
    reason: str = ""  #: why no connected node can run it
    nodes_too_expensive: int = 0  #: able, but not at this ceiling
    zones: list[ZoneOffer] = []
    start: Estimate
    run: Estimate
    finish: Estimate
    cost_p50: int | None = None  #: for one job, at the highest price, by how long such jobs ran
    cost_p90: int | None = None
    earns_low: int | None = None  #: what a provider gets per hour, after the fee
    earns_high: int | None = None
    earns_run: int | None = None  #: for an ordinary run (p50) at the highest price
    sentences: list[str]
