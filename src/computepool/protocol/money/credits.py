"""Wire models of credits, statements, costs, quotes and price tables. Amounts are whole microcredits."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from computepool.core.jobs.lifecycle import JobKind, JobState
from computepool.core.money.money import AMOUNT_MAX, CREDIT
from computepool.protocol.base import Digest, Micro, Name, NewName, Page, PositiveMicro, Reply, Request, Tag
from computepool.protocol.gangs import NODES_MAX
from computepool.protocol.jobs.checks import VerifyText, check_one_way
from computepool.protocol.jobs.jobs import TIMEOUT_MAX_S, Dependencies, ImageText, Needs, NetTargets
from computepool.protocol.secrets import SECRET_OWNERS_MAX

#: Jobs in one quote, which may be more than one submission can contain.
QUOTE_ITEMS_MAX = 1_000_000
RATES_MAX = 1_000

TierName = Annotated[str, StringConstraints(max_length=64, pattern=r"^[a-z0-9][a-z0-9._-]*$")]
RegionName = Annotated[str, StringConstraints(max_length=32, pattern=r"^[a-z][a-z-]*$")]
Hundredths = Annotated[int, Field(strict=True)]


class CreditsView(Reply):
    """The balance of an account."""

    account_id: str
    economy: str  #: market, time-bank or none
    available: int  #: can be spent now
    withdrawable: int  #: the part of `available` that can be paid out
    held: int  #: set aside for unfinished jobs
    maturing: int  #: earned, but not available yet
    unconfirmed: int = 0  #: the part of `maturing` that waits for another owner to confirm the result
    matures_next: int = 0  #: the part of `maturing` that becomes available first
    matures_at_ms: int | None = None  #: when `matures_next` becomes available
    holdback_ms: int  #: how long earnings mature


class Entry(Reply):
    """One transfer, from the point of view of one of its two sides."""

    seq: int
    at_ms: int
    kind: str
    amount: int
    change: int  #: of the account's total; 0 if the transfer is between its own balances
    available_change: int  #: of the amount that it can spend
    source: str  #: available, held, maturing, earned, fees, promotion, bank, payout or another account
    target: str
    job_id: str | None = None
    ref: str | None = None  #: an attempt, a payout, or an operator's note
    tx_key: str
    text: str  #: a sentence


class Sum(Reply):
    """All transfers of one kind."""

    kind: str
    transfers: int
    moved: int
    gained: int
    lost: int


class StatementPage(Page):
    entries: list[Entry]
    sums: list[Sum] = []  #: of all entries that match the filters; only on request


class CostLine(Reply):
    """One factor or part of a bill."""

    label: str
    amount: int | None = None  #: microcredits, if it is an amount of money
    text: str


class CostView(Reply):
    """How the cost of a job, or the pay for it, was computed. Fields that do not concern the caller are null."""

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
    total: int | None = None  #: of all runs; the other numbers are about one run
    so_far: int | None = None  #: the cost of the current run if it succeeded now; null: nothing runs
    runs: int | None = None  #: runs that were paid for
    lines: list[CostLine] = []
    sentence: str


class Leader(Reply):
    rank: int
    name: str
    ran_ms: int  #: total run time of the jobs
    jobs: int
    credits: int  #: earned after the fee, or paid including the fee


class LeaderboardView(Reply):
    since_ms: int
    by: Literal["credits", "hours"]
    lenders: list[Leader]
    borrowers: list[Leader]


class TopUpRequest(Request):
    """Credits that an operator gives to an account."""

    account: Name  #: its name or id
    amount: PositiveMicro
    source: Literal["bank", "promo"] = "promo"  #: bank: the person paid for them
    note: NewName | None = None  #: appears on the account's statement


class TopUpReply(Reply):
    id: str
    account_id: str
    name: str
    amount: int
    source: str
    available: int  #: the amount that the account can spend now
    #: the top-up still waits for a second administrator under this id
    approval_id: str | None = None


# prices


class PriceTableView(Reply):
    """All factors of a price. Rates are hundredths: 300 is 3.00."""

    version: int
    economy: str
    base: int
    tiers: dict[str, int]
    regions: dict[str, int]  #: any other region: 100
    fee_ppm: int
    fee_max_ppm: int = 200_000  #: the highest fee that this hub allows; a setting, not part of the table
    spot_range: int
    payout_min: int
    digest: str  #: SHA-256 of the table's canonical text; receipts name it
    created_by: str = ""
    created_at_ms: int = 0


class PricesRequest(Request):
    """A complete new table, based on version `based_on`; refused if that is no longer the latest."""

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
    """The latest version first."""

    versions: list[PriceVersion]


# quotes


class QuoteRequest(Request):
    needs: Needs = Needs()
    kind: JobKind | None = None
    timeout_s: float = Field(default=3600, gt=0, le=TIMEOUT_MAX_S)
    items: int = Field(default=1, strict=True, ge=1, le=QUOTE_ITEMS_MAX)
    nodes: int = Field(default=1, strict=True, ge=1, le=NODES_MAX)  #: of one job; it is priced for each
    max_price: Micro | None = None  #: per hour and job
    budget: PositiveMicro | None = None  #: for all items together
    net: NetTargets = []  #: hosts it must reach
    image: ImageText | None = None
    labels: list[Tag] = Field(default=[], max_length=32)
    dependencies: Dependencies = []
    #: it gets secrets, on your nodes and on those of these accounts; null: anywhere, or it gets none
    secret_owners: list[Name] | None = Field(default=None, max_length=SECRET_OWNERS_MAX)
    name: Name | None = None  #: to estimate the run time from earlier jobs with this name
    spec_digest: Digest | None = None  #: to estimate it from earlier jobs with this spec
    verify: VerifyText | None = None  #: as for a submission
    confidence: float | None = Field(default=None, ge=0.5, lt=1)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        check_one_way(self.verify, self.confidence)
        return self


class Estimate(Reply):
    """The median and the 90th percentile of earlier cases. Null: unknown, and `text` says why."""

    p50_ms: int | None = None
    p90_ms: int | None = None
    samples: int = 0
    text: str


class ZoneOffer(Reply):
    tier: str
    region: str
    spot: int  #: per unit-hour
    units: int  #: thousandths
    price: int  #: per hour for the job; 0 on your own nodes
    nodes_now: int
    nodes_able: int


class QuoteView(Reply):
    """The current estimates of a submission's cost, duration and earnings."""

    economy: str
    price_version: int
    items: int
    price_low: int | None = None  #: current price per hour and job; null: no connected node could run it
    price_high: int | None = None
    max_price: int  #: the ceiling that would be used
    hold_each: int  #: the most that one job can cost
    verify: str = "none"
    runs: int = 1  #: how many runs of a job verification may require, each of which is paid for
    hold_total: int
    own_node: bool = False  #: one of your own nodes could run it for free
    available: int
    affordable: bool
    missing: int = 0
    lasts_ms: int  #: how long a job may run at the highest price, given its time limit and its money
    nodes: int
    nodes_now: int
    nodes_able: int
    nodes_network: int | None = None  #: nodes that take jobs with network; null: the job lists no hosts
    nodes_python: int | None = None  #: nodes with the required Python version; null: the job requires none
    #: able nodes that have all its packages and large inputs; null: it has neither
    nodes_warm: int | None = None
    cold_ms: int | None = None  #: how long others take before it starts, as measured by nodes; null: unknown
    reason: str = ""  #: why no connected node can run it
    nodes_too_expensive: int = 0  #: able nodes whose price exceeds the ceiling
    zones: list[ZoneOffer] = []
    start: Estimate
    run: Estimate
    finish: Estimate
    cost_p50: int | None = None  #: for one job at the highest price, from the run times of such jobs
    cost_p90: int | None = None
    earns_low: int | None = None  #: a provider's earnings per hour, after the fee
    earns_high: int | None = None
    earns_run: int | None = None  #: for a typical run (p50) at the highest price
    sentences: list[str]
