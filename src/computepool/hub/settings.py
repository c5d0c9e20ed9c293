"""Every setting and every limit of a hub, each with a name and a default. Environment variables start with COMPUTEPOOL_."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from computepool.core.jobs.leases import LeaseRules
from computepool.core.jobs.lifecycle import RetryLimits
from computepool.core.money.money import CREDIT
from computepool.core.money.payouts import ApprovalRules
from computepool.core.money.pricing import Economy
from computepool.core.network import Network, parse_networks
from computepool.core.placement.exploration import EXPLORE_SHARE
from computepool.core.trust.reputation import EXPOSURE_BASE, NEWCOMER_JOBS
from computepool.protocol import local_address
from computepool.protocol.jobs.jobs import RESULT_MAX


class Settings(BaseSettings):
    # An error about one setting must not print the others: some are secrets.
    model_config = SettingsConfigDict(env_prefix="COMPUTEPOOL_", extra="ignore", hide_input_in_errors=True)

    name: str = "computepool"
    host: str = "127.0.0.1"
    port: int = 8000
    data_dir: Path = Path("data")
    database_url: str = Field(default="", validation_alias="DATABASE_URL")  #: empty: SQLite in data_dir
    #: how others reach this hub, with the path that it has behind a proxy; empty: its own address and port
    public_url: str = Field(default="", pattern=r"^(https?://[^/?#\s]+(/[A-Za-z0-9._~-]+)*/?)?$")
    dashboard_dir: str = ""  #: the built dashboard; empty: the installed one; none: the plain pages instead
    trusted_origins: str = ""  #: other servers' addresses that the dashboard is used at, with commas
    #: Only nodes of this mesh version are let in; empty: any (docs/mesh.md)
    mesh_version: str = Field(default="", max_length=64, pattern=r"^([A-Za-z0-9][A-Za-z0-9._:/+-]*)?$")

    # leases (see core/jobs/leases.py)
    polls_per_s_max: int = 4_000
    interval_min_s: float = 10
    interval_max_s: float = 50
    lease_min_s: float = 60
    self_fence_s: float = 10
    boot_grace_s: float = 120
    sweep_s: float = 10

    # retries (see core/jobs/lifecycle.py)
    node_faults_max: int = 5
    owners_max: int = 3
    owners_unable_max: int = Field(default=2, ge=2)
    backoff_base_s: float = 1
    backoff_max_s: float = 60

    # dispatch
    dispatch_batch_max: int = 512
    lane_depth_max: int = 64
    lane_work_ms: float = 100  #: how much work a lane may hold; keeps priorities meaningful
    backlog_max: int = 200_000
    resync_s: float = 5

    # finding (see hub/lookup/references.py)
    #: Newest jobs or groups of an account looked at for a name.
    find_names_max: int = Field(default=20_000, ge=1)

    # money, in microcredits (see core/money/pricing.py)
    economy: Economy = Economy.MARKET
    economy_convert: bool = False  #: let credits of one economy become those of another, one to one
    signup_grant: int = Field(default=1_000 * CREDIT, ge=0)
    operator_grant: int = Field(default=10_000_000 * CREDIT, ge=0)  #: to the first admin, at the first start
    fee_max_percent: int = Field(default=20, ge=0, le=99)  #: the highest fee that a price table may have
    tick_s: float = Field(default=15, gt=0)  #: between two spot prices
    spots_keep_s: float = 30 * 24 * 3600
    holdback_s: float = 7 * 24 * 3600  #: earnings mature after this
    #: And those of owners with 30 verified days after this, if sooner.
    holdback_tenured_s: float = 3 * 24 * 3600
    mature_s: float = Field(default=60, gt=0)  #: between two looks at what has matured
    spend_per_day_max: int = Field(default=100_000_000 * CREDIT, ge=0)  #: per account
    submits_per_s: float = 1_000  #: per account
    requests_per_s: float = 2_000  #: per account, everything

    # payouts (see core/money/payouts.py and docs/payouts.md)
    payout_provider: Literal["manual", "razorpayx"] = "manual"
    payout_approve_first: bool = True  #: an account's first payout needs an administrator
    payout_approve_above: int = Field(default=10_000 * CREDIT, ge=0)  #: and so does every larger one
    payout_two_persons: bool = False  #: who asked for a payout may not approve it
    two_person: str = ""  #: what needs a second administrator: payouts, top-ups, roles, with commas
    backup_stamp: Path | None = None  #: a file that a backup touches when it succeeds; Health shows its age
    backup_age_s: float = Field(default=2 * 24 * 3600, gt=0)  #: a backup older than this is reported
    #: how long a second administrator may take
    approval_lifetime_s: float = Field(default=7 * 24 * 3600, gt=0)
    payouts_open_max: int = 20  #: undecided, per account
    payout_round_s: float = 5  #: how often payouts are sent and asked about
    payout_batch_max: int = 200  #: in one round
    payout_calls_max: int = 4  #: to the bank, at the same time
    payout_call_s: float = 20  #: how long the bank may take to answer
    payout_retry_base_s: float = 5  #: between two questions about one payout, doubled each time
    payout_retry_max_s: float = 900
    #: an order that the bank has never heard of after this is not on its way any more
    payout_certain_s: float = 3600
    razorpayx_url: str = "https://api.razorpay.com"
    razorpayx_key_id: str = ""
    razorpayx_key_secret: SecretStr = SecretStr("")
    razorpayx_account_number: str = ""  #: the account that payouts are made from
    razorpayx_webhook_secret: SecretStr = SecretStr("")  #: empty: no webhooks, the hub asks

    # webhooks (see docs/notifications.md)
    webhooks_max: int = Field(default=20, ge=0)  #: per account
    webhook_private: str = ""  #: networks that webhooks reach although they are private, with commas
    webhook_round_s: float = Field(default=1, gt=0)  #: how often is looked for what to tell
    webhook_batch_max: int = Field(default=20, ge=1)  #: to one webhook, before others have their turn
    webhook_calls_max: int = Field(default=16, ge=1)  #: at the same time; of each webhook, one
    webhook_account_calls_max: int = Field(default=4, ge=1)  #: of one account
    webhook_tests_max: int = Field(default=10, ge=0)  #: that an account may ask for in a minute
    webhook_call_s: float = Field(default=10, gt=0)  #: how long a receiver may take to answer
    webhook_retry_base_s: float = Field(default=5, gt=0)  #: between two tries, doubled each time
    webhook_retry_max_s: float = Field(default=3600, gt=0)
    webhook_retry_for_s: float = Field(default=24 * 3600, ge=0)  #: then a message is given up
    webhook_disable_after_s: float = Field(default=5 * 24 * 3600, ge=0)  #: and after this, the webhook
    webhook_keep_s: float = Field(default=30 * 24 * 3600, ge=0)  #: how long deliveries are listed

    # store
    group_commit_max: int = 256
    read_threads: int = 4
    pool_size: int = 8

    # artifacts (see docs/artifacts.md)
    #: where the bytes are: empty, in data_dir; s3://bucket/prefix, at an S3-compatible service
    blobs: str = ""
    s3_endpoint: str = ""  #: empty: Amazon's own
    s3_region: str = ""
    s3_access_key_id: str = ""  #: empty: wherever boto3 finds credentials, such as the machine's own role
    s3_secret_access_key: SecretStr = SecretStr("")
    #: In memory, per upload.
    s3_part_bytes: int = Field(default=16 * 1024**2, ge=5 * 1024**2, le=256 * 1024**2)
    artifact_bytes_max: int = Field(default=1024**4, ge=0)  #: kept per account
    #: How far, as a share of its quota, results of jobs may go beyond it.
    artifact_reserve: float = Field(default=0.5, ge=0)
    #: After the job that it belongs to has ended.
    artifact_keep_s: float = Field(default=90 * 24 * 3600, ge=0)
    #: Bytes that nothing names are left alone this long.
    artifact_grace_s: float = Field(default=24 * 3600, ge=0)

    # what people watch (see docs/dashboard.md)
    news_every_s: float = Field(default=0.25, ge=0)  #: how often an open page is told what changed, at most
    #: How long it is told nothing at most; after twice that and a second it says that the hub is away.
    news_alive_s: float = Field(default=1.5, gt=0)
    #: Events that such news is made of; of more, the rest is not named.
    news_events_max: int = Field(default=1_000, gt=0)
    streams_max: int = Field(default=100, gt=0)  #: of events and news, that an account holds open at a hub
    mesh_age_s: float = Field(default=1, ge=0)  #: how old the counters and the list of nodes may be
    usage_points_max: int = Field(default=240, ge=4)  #: of one attempt over time
    #: Attempts that are watched at once; the others are not.
    usage_series_max: int = Field(default=20_000, ge=0)
    usage_round_s: float = Field(default=5, gt=0)  #: how often is looked for what has to be saved
    usage_save_s: float = Field(default=300, ge=0)  #: how often that of attempts that still run is saved
    usage_keep_s: float = Field(default=90 * 24 * 3600, ge=0)
    #: A node that comes back sooner was online all the time: its hub may have restarted.
    uptime_gap_s: float = Field(default=180, ge=0)

    # limits
    #: Of a request that carries work: submissions, polls, reports, keys.
    body_max_bytes: int = 8 * 1024 * 1024
    plain_body_max_bytes: int = 1024 * 1024  #: of any other
    anonymous_body_max_bytes: int = 64 * 1024  #: of callers who have not signed in
    unread_body_max_bytes: int = 256 * 1024  #: after the answer; then the connection is closed
    #: That an account, a node or an unknown address may be sending at once, of those that come in pieces.
    arriving_bodies_max: int = Field(default=64, ge=1)
    json_values_max: int = Field(default=1_000_000, ge=1)  #: in one body
    json_values_per_s: float = Field(default=500_000, gt=0)  #: per account, or node
    artifact_max_bytes: int = 64 * 1024**3
    artifact_chunk_bytes: int = 1024 * 1024
    upload_idle_s: float = 24 * 3600
    unreported_keep_s: float = 3 * 24 * 3600  #: a node's upload waits this long for the report that names it
    unreported_max_bytes: int = Field(default=256 * 1024**3, ge=0)  #: and so much of it, per node
    #: Between two events about reports of one node that make no sense; metrics count all of them.
    odd_report_event_s: float = Field(default=60, ge=0)
    #: Of what a function returns; larger ones only as files.
    result_max_bytes: int = Field(default=RESULT_MAX, ge=0)
    log_max_bytes: int = 5 * 1024 * 1024  #: kept per attempt
    checkpoint_max_bytes: int = Field(default=64 * 1024**3, ge=0)  #: of all files of one
    checkpoint_gap_s: float = Field(default=5, ge=0)  #: between two of a job, at least
    #: After so many failures of attempts that went on from one, the next starts at the beginning.
    checkpoint_failures_max: int = Field(default=2, ge=1)
    moves_max: int = Field(default=16, ge=0)  #: from host to host, per job, because it said so
    move_wait_s: float = Field(default=24 * 3600, ge=0)  #: for the host that it named to take it
    #: Jobs that one job may submit while it runs, with those that they submit; 0: none.
    children_max: int = Field(default=1_000, ge=0)
    children_depth_max: int = Field(default=3, ge=1)  #: how far from the job that a person submitted
    messages_max: int = Field(default=1_000, ge=0)  #: to its collector, per attempt
    message_max_bytes: int = Field(default=16 * 1024, ge=0)  #: of one
    messages_per_s: float = Field(default=20, gt=0)  #: per attempt
    jobs_open_max: int = 1_000_000  #: per account
    group_keys_max: int = 200_000  #: keys that a group may expect
    groups_max: int = Field(default=1_000_000, ge=1)  #: per account
    result_page_bytes: int = 8 * 1024 * 1024  #: a page of results ends here, whatever its limit
    wait_max_s: float = 60
    registrations_per_s: float = 500
    #: Of one node: to come, to stop and to change its key. Each is an event, and learning what a node holds takes time.
    arrivals_per_s: float = Field(default=0.1, gt=0)
    arrivals_burst: int = Field(default=60, gt=0)
    #: Nodes, per account; administrators may as many as they like.
    enrolments_per_day: int = Field(default=5, ge=0)
    #: From one address, and at one key or code; wrong ones alone count.
    failed_signins_per_min: float = Field(default=20, gt=0)
    failed_signins_burst: int = Field(default=20, ge=1)
    enrol_code_lifetime_s: float = 900
    join_code_lifetime_s: float = Field(default=24 * 3600, gt=0)  #: of a code that several hosts join with
    join_code_hosts: int = Field(default=32, ge=1)  #: how many, at most, with one code
    signin_code_lifetime_s: float = 900
    cookie_lifetime_s: float = 7 * 24 * 3600
    #: How often the hub's signing key changes; 0: by hand alone.
    key_rotation_days: float = Field(default=90, ge=0)
    #: How long the last one is accepted: the longest token's life, and a day.
    key_overlap_s: float = Field(default=48 * 3600, ge=48 * 3600)
    #: The same for a node's own, when it changes it.
    node_key_overlap_s: float = Field(default=24 * 3600, ge=0)
    idempotency_keep_s: float = 7 * 24 * 3600
    concurrency_max: int = 120_000  #: connections
    #: that have not said yet what they want; beyond it, the slowest is closed
    connections_pending_max: int = 10_000
    header_deadline_s: float = Field(default=10, gt=0)
    header_max_bytes: int = 64 * 1024
    body_grace_s: float = Field(default=10, ge=0)  #: before the least speed of a body counts
    body_bytes_per_s_min: int = Field(default=1024, ge=0)
    #: Jobs of others before a node may have two at once.
    newcomer_jobs: int = Field(default=NEWCOMER_JOBS, ge=0)
    verify: str = "adaptive"  #: of submissions that do not say: none, adaptive, quorum:K, confidence:P
    #: Times as long as agreeing runs took that a run is billed.
    bill_tolerance: float = Field(default=2, ge=1)
    bill_grace_s: float = Field(default=2, ge=0)  #: and so much longer
    #: Beyond so many times what is billed, or what the program usually takes, a node has padded its time.
    padding_factor: float = Field(default=4, ge=1)
    padding_grace_s: float = Field(default=30, ge=0)  #: and so much longer
    #: how long a result waits for somebody to confirm it, where none is insisted on
    verify_wait_s: float = 600
    #: After so many results in a row of one program that its two owners disagree about, they are not compared.
    verify_ties_max: int = Field(default=3, ge=1)
    #: A node that was heard so lately, by whichever hub, may still come to confirm one.
    verify_known_s: float = Field(default=3600, ge=0)
    verify_known_max: int = Field(default=2_000, ge=0)  #: of those that do not poll this hub, so many
    verify_known_round_s: float = Field(default=60, gt=0)  #: how often they are looked for
    #: How long pay for a result is held that was due for a check and had none.
    unconfirmed_days: float = Field(default=30, ge=0)
    #: How long a submitter must have been here before his jobs help to ban a node, or to test one.
    ban_submitter_days: float = Field(default=14, ge=0)
    probe_round_s: float = Field(default=30, gt=0)  #: between two looks at which nodes have to be tested
    #: Nodes are tested with jobs no older than this: results may depend on the day, or on new packages.
    probe_age_s: float = Field(default=3600, gt=0)
    #: Jobs of which one run may cost more than this are not used as tests.
    probe_cost_max: int = Field(default=20 * CREDIT, ge=0)
    #: How long a submitter's function may take to compare two results.
    compare_timeout_s: float = Field(default=60, gt=0, le=600)
    #: Unchecked results of a node that are run again when one of its results was wrong, the newest.
    recheck_max: int = Field(default=40, ge=0)
    recheck_age_s: float = Field(default=7 * 24 * 3600, ge=0)  #: and none that are older
    #: What looking again at one owner's results may cost the pool in that time.
    recheck_spend: int = Field(default=50 * CREDIT, ge=0)
    #: Between two measurements of a node, on average; 0: never.
    measure_every_s: float = Field(default=24 * 3600, ge=0)
    measure_first_s: float = Field(default=5, ge=0)  #: after a node's first word
    measure_answer_s: float = 900  #: how long an answer is waited for before it is asked for again
    measure_history: int = Field(default=10, ge=0)  #: earlier measurements that are kept
    retier_round_s: float = Field(default=5, gt=0)  #: between two looks at run times
    retier_factor: float = Field(default=1.5, gt=1)  #: jobs that take so many times as long are too slow
    retier_jobs: int = Field(default=20, ge=2)  #: so many of them, twice
    retier_peers: int = Field(default=3, ge=1)  #: held against so many nodes of other owners
    #: Submitters it takes against a good measurement; at most 2.
    retier_accounts: int = Field(default=2, ge=1)
    retier_shortest_ms: int = 50  #: shorter runs are not compared
    retier_keep_s: float = 7 * 24 * 3600  #: then the claim is tried again
    #: Microcredits that jobs of others on a new owner's nodes may be worth together; 0: anything.
    exposure: int = Field(default=EXPOSURE_BASE, ge=0)
    #: Of cheap jobs that are given by chance, so that more gets known of nodes.
    explore_share: float = Field(default=EXPLORE_SHARE, ge=0, le=1)
    breaker_faults: int = 3  #: node faults in a row before a node cools off
    breaker_base_s: float = 300
    breaker_max_s: float = 24 * 3600
    shutdown_s: int = 1
    log_level: str = "info"

    @model_validator(mode="after")
    def _leases_leave_time_to_work(self) -> Self:
        if self.self_fence_s >= self.lease_min_s:
            raise ValueError(
                "self_fence_s must be less than lease_min_s: nodes stop a job that long before its lease ends"
            )
        return self

    @model_validator(mode="after")
    def _the_bank_can_be_spoken_to(self) -> Self:
        named = (
            self.razorpayx_key_id,
            self.razorpayx_key_secret.get_secret_value(),
            self.razorpayx_account_number,
        )
        if self.payout_provider == "razorpayx" and not all(named):
            raise ValueError(
                "payouts by razorpayx need razorpayx_key_id, razorpayx_key_secret and razorpayx_account_number"
            )
        return self

    @model_validator(mode="after")
    def _two_persons_are_for_something(self) -> Self:
        unknown = self.two_person_kinds() - {"payouts", "top-ups", "roles"}
        if unknown:
            raise ValueError(f"two_person knows payouts, top-ups and roles, not {', '.join(sorted(unknown))}")
        return self

    def two_person_kinds(self) -> frozenset[str]:
        """Anything at all means roles, too: else one administrator could make the second one himself."""
        named = frozenset(word.strip() for word in self.two_person.split(",") if word.strip())
        return named | {"roles"} if named else named

    @model_validator(mode="after")
    def _webhook_networks_are_networks(self) -> Self:
        try:
            self.webhook_networks()
        except ValueError as error:
            raise ValueError(f"webhook_private: {error}") from None
        return self

    def webhook_networks(self) -> tuple[Network, ...]:
        return parse_networks(filter(None, self.webhook_private.split(",")))

    @property
    def url(self) -> str:
        return self.database_url or f"sqlite:///{(self.data_dir / 'hub.sqlite').absolute()}"

    @property
    def address(self) -> str:
        return self.public_url.rstrip("/") or local_address.url_of(self.host, self.port)

    @property
    def prefix(self) -> str:
        """The path that everything is under for those who come through a proxy; mostly empty."""
        return urlsplit(self.address).path

    def origins(self) -> frozenset[str]:
        """Whose pages may use a person's cookie, besides those of the host that was asked itself."""
        own = urlsplit(self.address)
        named = (word.strip().rstrip("/") for word in self.trusted_origins.split(","))
        return frozenset({f"{own.scheme}://{own.netloc}", *filter(None, named)})

    @property
    def unconfirmed_ms(self) -> int:
        return round(self.unconfirmed_days * 24 * 3600 * 1000)

    @property
    def holdback_ms(self) -> int:
        return round(self.holdback_s * 1000)

    def lease_rules(self) -> LeaseRules:
        return LeaseRules(
            polls_per_s_max=self.polls_per_s_max,
            interval_min_ms=round(self.interval_min_s * 1000),
            interval_max_ms=round(self.interval_max_s * 1000),
            lease_min_ms=round(self.lease_min_s * 1000),
            suspect_slack_ms=round(self.interval_min_s * 1000),
            self_fence_ms=round(self.self_fence_s * 1000),
            boot_grace_min_ms=round(self.boot_grace_s * 1000),
        )

    def approval_rules(self) -> ApprovalRules:
        return ApprovalRules(
            first=self.payout_approve_first,
            above=self.payout_approve_above,
            two_persons=self.payout_two_persons,
        )

    def retry_limits(self, retries: int) -> RetryLimits:
        return RetryLimits(
            retries=retries,
            node_faults_max=self.node_faults_max,
            owners_max=self.owners_max,
            owners_unable_max=self.owners_unable_max,
            backoff_base_ms=round(self.backoff_base_s * 1000),
            backoff_max_ms=round(self.backoff_max_s * 1000),
        )
