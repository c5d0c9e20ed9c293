"""All settings and limits of a hub, with their defaults. Environment variables start with COMPUTEPOOL_."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from computepool.core.jobs.leases import LeaseRules
from computepool.core.jobs.settlement import RetryLimits
from computepool.core.money.money import CREDIT
from computepool.core.money.payouts import ApprovalRules
from computepool.core.money.pricing import Economy
from computepool.core.network import Network, parse_networks
from computepool.core.placement.exploration import EXPLORE_SHARE
from computepool.core.resources import UPLOADED
from computepool.core.trust.reputation import EXPOSURE_BASE, NEWCOMER_JOBS
from computepool.protocol import local_address
from computepool.protocol.gangs import NODES_MAX
from computepool.protocol.images.names import check_registries
from computepool.protocol.jobs.jobs import RESULT_MAX
from computepool.protocol.secrets import SECRET_BYTES_MAX
from computepool.protocol.volumes.manifest import FILES_MAX, SIZE_MAX


class Settings(BaseSettings):
    # An error about one setting must not print the others, because some are secrets.
    model_config = SettingsConfigDict(env_prefix="COMPUTEPOOL_", extra="ignore", hide_input_in_errors=True)

    name: str = "computepool"
    host: str = "127.0.0.1"
    port: int = 8000
    data_dir: Path = Path("data")
    database_url: str = Field(default="", validation_alias="DATABASE_URL")  #: empty: SQLite in data_dir
    #: The address by which others reach this hub, with its path behind a proxy; empty: its own host and port.
    public_url: str = Field(default="", pattern=r"^(https?://[^/?#\s]+(/[A-Za-z0-9._~-]+)*/?)?$")
    dashboard_dir: str = ""  #: the built dashboard; empty: the installed one; `none`: plain pages instead
    trusted_origins: str = ""  #: other addresses at which the dashboard is used, comma separated
    #: Only nodes of this mesh version may join; empty: any (docs/mesh.md).
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
    lane_depth_max: int = 256  #: with fewer, two slots would wait for the next poll
    lane_work_ms: float = 100  #: work that a lane may hold; more would make priorities meaningless
    backlog_max: int = 200_000
    resync_s: float = 5

    # lookup (see hub/lookup/references.py)
    #: How many of an account's newest jobs or groups are searched for a name.
    find_names_max: int = Field(default=20_000, ge=1)

    # money, in microcredits (see core/money/pricing.py)
    economy: Economy = Economy.MARKET
    economy_convert: bool = False  #: allow a change of the economy, which converts credits one to one
    signup_grant: int = Field(default=1_000 * CREDIT, ge=0)
    operator_grant: int = Field(default=10_000_000 * CREDIT, ge=0)  #: to the first admin
    fee_max_percent: int = Field(default=20, ge=0, le=99)  #: the highest fee that a price table may have
    tick_s: float = Field(default=15, gt=0)  #: how often spot prices change
    spots_keep_s: float = 30 * 24 * 3600
    holdback_s: float = 7 * 24 * 3600  #: earnings mature after this time
    #: Earnings of owners with 30 verified days mature after this time, if it is shorter.
    holdback_tenured_s: float = 3 * 24 * 3600
    mature_s: float = Field(default=60, gt=0)  #: how often matured earnings are released
    spend_per_day_max: int = Field(default=100_000_000 * CREDIT, ge=0)  #: per account
    submits_per_s: float = 1_000  #: per account
    requests_per_s: float = 2_000  #: per account, of any kind

    # payouts (see core/money/payouts.py and docs/payouts.md)
    payout_provider: Literal["manual", "razorpayx"] = "manual"
    payout_approve_first: bool = True  #: an account's first payout needs an administrator
    payout_approve_above: int = Field(default=10_000 * CREDIT, ge=0)  #: and so does every larger one
    payout_two_persons: bool = False  #: nobody may approve their own payout
    two_person: str = ""  #: what needs a second administrator: payouts, top-ups, roles; comma separated
    backup_stamp: Path | None = None  #: a file that each successful backup touches; Health shows its age
    backup_age_s: float = Field(default=2 * 24 * 3600, gt=0)  #: a backup older than this is reported
    approval_lifetime_s: float = Field(default=7 * 24 * 3600, gt=0)  #: until a request for approval expires
    payouts_open_max: int = 20  #: undecided, per account
    payout_round_s: float = 5  #: how often payouts are sent to the bank and checked there
    payout_batch_max: int = 200  #: in one round
    payout_calls_max: int = 4  #: concurrent calls to the bank
    payout_call_s: float = 20  #: how long the bank may take to answer
    payout_retry_base_s: float = 5  #: between two calls about one payout, doubled each time
    payout_retry_max_s: float = 900
    #: An order that the bank does not know after this time was never received.
    payout_certain_s: float = 3600
    razorpayx_url: str = "https://api.razorpay.com"
    razorpayx_key_id: str = ""
    razorpayx_key_secret: SecretStr = SecretStr("")
    razorpayx_account_number: str = ""  #: the account that payouts are made from
    razorpayx_webhook_secret: SecretStr = SecretStr("")  #: empty: the hub polls instead

    # images (see docs/images.md)
    image_registries: str = "*"  #: registries whose images jobs may name, comma separated; *: all; empty: none
    image_private: str = ""  #: private networks in which the hub may ask registries, comma separated
    image_resolve_s: float = Field(default=5, ge=0)  #: to look up the digest of a tag; 0: nodes do it
    image_resolved_s: float = Field(default=60, ge=0)  #: for how long a tag keeps the digest that was found
    image_resolved_max: int = Field(default=1_000, ge=1)  #: tags that are remembered

    # webhooks (see docs/notifications.md)
    webhooks_max: int = Field(default=20, ge=0)  #: per account
    webhook_private: str = ""  #: private networks that webhooks may reach, comma separated
    webhook_round_s: float = Field(default=1, gt=0)  #: how often new messages are sent
    webhook_batch_max: int = Field(default=20, ge=1)  #: messages to one webhook before others have their turn
    webhook_calls_max: int = Field(default=16, ge=1)  #: concurrent calls; each webhook has one at a time
    webhook_account_calls_max: int = Field(default=4, ge=1)  #: concurrent calls of one account
    webhook_tests_max: int = Field(default=10, ge=0)  #: test messages of an account in a minute
    webhook_call_s: float = Field(default=10, gt=0)  #: how long a receiver may take to answer
    webhook_retry_base_s: float = Field(default=5, gt=0)  #: between two tries, doubled each time
    webhook_retry_max_s: float = Field(default=3600, gt=0)
    webhook_retry_for_s: float = Field(default=24 * 3600, ge=0)  #: until a message is given up
    webhook_disable_after_s: float = Field(default=5 * 24 * 3600, ge=0)  #: of continuous failure
    webhook_keep_s: float = Field(default=30 * 24 * 3600, ge=0)  #: how long deliveries are listed

    # store
    group_commit_max: int = 256
    read_threads: int = 4

    # artifacts (see docs/artifacts.md)
    blobs: str = ""  #: s3://bucket/prefix at an S3-compatible service; empty: in data_dir
    s3_endpoint: str = ""  #: empty: Amazon's own
    s3_region: str = ""
    s3_access_key_id: str = ""  #: empty: boto3 finds credentials, such as the machine's own role
    s3_secret_access_key: SecretStr = SecretStr("")
    s3_part_bytes: int = Field(default=16 * 1024**2, ge=5 * 1024**2, le=256 * 1024**2)  #: in memory per upload
    artifact_bytes_max: int = Field(default=1024**4, ge=0)  #: kept per account
    #: How far results of jobs may exceed the quota, as a share of it.
    artifact_reserve: float = Field(default=0.5, ge=0)
    artifact_keep_s: float = Field(default=90 * 24 * 3600, ge=0)  #: after the end of its job
    artifact_grace_s: float = Field(default=24 * 3600, ge=0)  #: before bytes that nothing refers to are deleted

    # volumes (see docs/volumes.md)
    volumes_max: int = Field(default=1_000, ge=0)  #: per account
    volume_max_bytes: int = Field(default=SIZE_MAX, ge=0, le=SIZE_MAX)  #: of the files of one version
    volume_files_max: int = Field(default=FILES_MAX, ge=0, le=FILES_MAX)  #: files, folders and links of one version
    #: Versions kept of a volume, and as many conflicts; the head and what jobs use are kept in any case.
    volume_versions_max: int = Field(default=20, ge=1)

    # live view (see docs/dashboard.md)
    news_every_s: float = Field(default=0.25, ge=0)  #: the shortest time between two notifications of an open page
    #: The longest time between them; a page reports that the hub is away after twice this time and a second.
    news_alive_s: float = Field(default=1.5, gt=0)
    news_events_max: int = Field(default=1_000, gt=0)  #: events that a notification covers in detail
    streams_max: int = Field(default=100, gt=0)  #: open streams of events and news, per account
    mesh_age_s: float = Field(default=1, ge=0)  #: how old the counters and the list of nodes may be
    usage_points_max: int = Field(default=240, ge=4)  #: measurements of one attempt
    usage_series_max: int = Field(default=20_000, ge=0)  #: attempts whose use is recorded at once
    usage_round_s: float = Field(default=5, gt=0)  #: how often the use of ended attempts is saved
    usage_save_s: float = Field(default=300, ge=0)  #: how often that of running attempts is saved
    usage_keep_s: float = Field(default=90 * 24 * 3600, ge=0)
    #: A node that was silent for a shorter time counts as online: its hub may have restarted.
    uptime_gap_s: float = Field(default=180, ge=0)

    # limits
    body_max_bytes: int = 8 * 1024 * 1024  #: of requests that carry work: submissions, polls, reports, keys
    plain_body_max_bytes: int = 1024 * 1024  #: of any other request
    anonymous_body_max_bytes: int = 64 * 1024  #: of callers who are not signed in
    unread_body_max_bytes: int = 256 * 1024  #: received after the answer; then the connection is closed
    #: Bodies in several pieces that an account, a node or an unknown address may be sending at once.
    arriving_bodies_max: int = Field(default=64, ge=1)
    json_values_max: int = Field(default=1_000_000, ge=1)  #: in one body
    json_values_per_s: float = Field(default=500_000, gt=0)  #: per account, or node
    artifact_max_bytes: int = 64 * 1024**3
    artifact_chunk_bytes: int = 1024 * 1024
    upload_idle_s: float = 24 * 3600
    unreported_keep_s: float = 3 * 24 * 3600  #: how long a node's upload is kept without a report that names it
    unreported_max_bytes: int = Field(default=256 * 1024**3, ge=0)  #: of such uploads, per node
    #: Between two events about one node's nonsensical reports; metrics count all of them.
    odd_report_event_s: float = Field(default=60, ge=0)
    result_max_bytes: int = Field(default=RESULT_MAX, ge=0)  #: of a function's result; larger ones are files
    log_max_bytes: int = 5 * 1024 * 1024  #: kept per attempt
    checkpoint_max_bytes: int = Field(default=64 * 1024**3, ge=0)  #: of all files of one checkpoint
    checkpoint_gap_s: float = Field(default=5, ge=0)  #: the shortest time between two of a job
    #: After so many failed attempts that resumed from one checkpoint, the next starts at the beginning.
    checkpoint_failures_max: int = Field(default=2, ge=1)
    moves_max: int = Field(default=16, ge=0)  #: to other hosts, as a job requested itself
    move_wait_s: float = Field(default=24 * 3600, ge=0)  #: for the named host to take the job
    children_max: int = Field(default=1_000, ge=0)  #: jobs that one job and its descendants may submit
    children_depth_max: int = Field(default=3, ge=1)  #: generations below the job that a person submitted
    messages_max: int = Field(default=1_000, ge=0)  #: to the collector, per attempt
    message_max_bytes: int = Field(default=16 * 1024, ge=0)  #: of one message
    messages_per_s: float = Field(default=20, gt=0)  #: per attempt
    gang_nodes_max: int = Field(default=64, ge=1, le=NODES_MAX)  #: nodes of one job (docs/gangs.md)
    gang_start_s: float = Field(default=600, gt=0)  #: how long members that are ready wait for the others
    gang_hold_after_s: float = Field(default=60, ge=0)  #: of waiting, before nodes are kept for a gang; 0: never
    gang_hold_s: float = Field(default=600, gt=0)  #: how long they are kept; then they are not for as long
    gang_relay_bytes_max: int = Field(default=64 * 1024**3, ge=0)  #: from each member to the others, through the hub
    gang_queue_bytes: int = Field(default=8 * 1024**2, ge=2 * 65_537)  #: waiting for each member; more is dropped
    graph_jobs_max: int = Field(default=200, ge=1)  #: jobs in one graph of jobs
    jobs_open_max: int = 1_000_000  #: per account
    group_keys_max: int = 200_000  #: keys that a group may expect
    groups_max: int = Field(default=1_000_000, ge=1)  #: per account
    result_page_bytes: int = 8 * 1024 * 1024  #: a page of results ends at this size, whatever its limit
    wait_max_s: float = 60
    registrations_per_s: float = 500
    #: Starts, stops and key changes of one node. Each is an event, and a start makes the hub load the node's attempts.
    arrivals_per_s: float = Field(default=0.1, gt=0)
    arrivals_burst: int = Field(default=60, gt=0)
    enrolments_per_day: int = Field(default=5, ge=0)  #: nodes per account; administrators are exempt
    #: From one address, and with one key or code; only wrong ones count.
    failed_signins_per_min: float = Field(default=20, gt=0)
    failed_signins_burst: int = Field(default=20, ge=1)
    enrol_code_lifetime_s: float = 900
    join_code_lifetime_s: float = Field(default=24 * 3600, gt=0)  #: of a code for several hosts
    join_code_hosts: int = Field(default=32, ge=1)  #: the most hosts that may join with one code
    signin_code_lifetime_s: float = 900
    secrets_max: int = Field(default=100, ge=0)  #: per account
    secret_bytes_max: int = Field(default=16 * 1024, ge=1, le=SECRET_BYTES_MAX)  #: of one value
    #: Mixed into the key that encrypts secrets, so that a copy of the database does not reveal them. The same at all hubs of
    #: a pool; with another one, stored secrets cannot be read.
    secrets_key: SecretStr = SecretStr("")
    schedules_max: int = Field(default=50, ge=0)  #: per account
    schedule_max_bytes: int = Field(default=1024 * 1024, ge=0)  #: of what one submits
    schedule_interval_min_s: float = Field(default=60, ge=60)  #: the shortest time between two ticks
    schedule_round_s: float = Field(default=1, gt=0)  #: how often due ticks are looked for
    schedule_grace_s: float = Field(default=60, ge=0)  #: a later tick counts as missed
    schedule_retry_s: float = Field(default=30, gt=0)  #: before another hub submits the run of one that died
    schedule_waiting_max: int = Field(default=10, ge=1)  #: runs that wait for the run before
    schedule_failures_max: int = Field(default=5, ge=1)  #: submissions that fail in a row before it is paused
    schedule_runs_max: int = Field(default=200, ge=1)  #: runs listed, per schedule
    cookie_lifetime_s: float = 7 * 24 * 3600
    key_rotation_days: float = Field(default=90, ge=0)  #: how often the hub's signing key changes; 0: only by hand
    #: How long the previous one is accepted: the longest life of a token, and a day.
    key_overlap_s: float = Field(default=48 * 3600, ge=48 * 3600)
    node_key_overlap_s: float = Field(default=24 * 3600, ge=0)  #: how long a node's previous key is accepted
    idempotency_keep_s: float = 7 * 24 * 3600
    concurrency_max: int = 120_000  #: connections
    connections_pending_max: int = 10_000  #: connections without complete headers; beyond it, the oldest is closed
    header_deadline_s: float = Field(default=10, gt=0)
    header_max_bytes: int = 64 * 1024
    body_grace_s: float = Field(default=10, ge=0)  #: before the minimum speed of a body counts
    body_bytes_per_s_min: int = Field(default=1024, ge=0)

    # trust (see docs/reputation.md and docs/verification.md)
    newcomer_jobs: int = Field(default=NEWCOMER_JOBS, ge=0)  #: jobs of others before a node may have two at once
    verify: str = "adaptive"  #: default of submissions: none, adaptive, quorum:K, confidence:P
    #: A run is billed for at most so many times as long as agreeing runs took, plus the grace.
    bill_tolerance: float = Field(default=2, ge=1)
    bill_grace_s: float = Field(default=2, ge=0)
    #: A node pads its time if it reports more than so many times the billed or usual time, plus the grace.
    padding_factor: float = Field(default=4, ge=1)
    padding_grace_s: float = Field(default=30, ge=0)
    verify_wait_s: float = 600  #: how long a result waits for an optional confirmation
    #: After so many disagreements in a row between its two owners, a program's results are no longer compared.
    verify_ties_max: int = Field(default=3, ge=1)
    #: A node that any hub has seen within this time may still confirm a result.
    verify_known_s: float = Field(default=3600, ge=0)
    verify_known_max: int = Field(default=2_000, ge=0)  #: of such nodes that do not poll this hub
    verify_known_round_s: float = Field(default=60, gt=0)  #: how often these are loaded
    unconfirmed_days: float = Field(default=30, ge=0)  #: how long pay is held if a due check could not be made
    ban_submitter_days: float = Field(default=14, ge=0)  #: minimum age of accounts whose jobs may ban or test a node
    probe_round_s: float = Field(default=30, gt=0)  #: how often nodes are chosen for a test
    #: Maximum age of a test's original job: results may depend on the day, or on new packages.
    probe_age_s: float = Field(default=3600, gt=0)
    probe_cost_max: int = Field(default=20 * CREDIT, ge=0)  #: of a run of a job that is used as a test
    compare_timeout_s: float = Field(default=60, gt=0, le=600)  #: for a submitter's function to compare two results
    recheck_max: int = Field(default=40, ge=0)  #: unchecked results of a node to run again after a wrong one
    recheck_age_s: float = Field(default=7 * 24 * 3600, ge=0)  #: maximum age of these
    recheck_spend: int = Field(default=50 * CREDIT, ge=0)  #: what rechecks of one owner may cost in that time
    measure_every_s: float = Field(default=24 * 3600, ge=0)  #: average time between measurements of a node; 0: never
    measure_first_s: float = Field(default=5, ge=0)  #: after a node's first poll
    measure_answer_s: float = 900  #: how long to wait for a measurement before requesting it again
    measure_history: int = Field(default=10, ge=0)  #: earlier measurements kept
    retier_round_s: float = Field(default=5, gt=0)  #: how often run times are judged
    retier_factor: float = Field(default=1.5, gt=1)  #: a run that takes so many times as long is too slow
    retier_jobs: int = Field(default=20, ge=2)  #: slow runs needed, twice
    retier_peers: int = Field(default=3, ge=1)  #: nodes of other owners to compare with
    retier_accounts: int = Field(default=2, ge=1)  #: submitters needed against a good measurement; at most 2
    retier_shortest_ms: int = 50  #: shorter runs are not compared
    retier_keep_s: float = 7 * 24 * 3600  #: until the node's claimed tier is tried again
    #: Value of others' jobs on a new owner's nodes at one time, in microcredits; 0: unlimited.
    exposure: int = Field(default=EXPOSURE_BASE, ge=0)
    #: Of cheap jobs placed at random, to learn about nodes.
    explore_share: float = Field(default=EXPLORE_SHARE, ge=0, le=1)

    # process
    breaker_faults: int = 3  #: node faults in a row before a node cools off
    breaker_base_s: float = 300
    breaker_max_s: float = 24 * 3600
    shutdown_s: int = 1
    log_level: str = "info"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.self_fence_s >= self.lease_min_s:
            raise ValueError(
                "self_fence_s must be less than lease_min_s: nodes stop a job this long before its lease ends"
            )
        named = (self.razorpayx_key_id, self.razorpayx_key_secret.get_secret_value(), self.razorpayx_account_number)
        if self.payout_provider == "razorpayx" and not all(named):
            raise ValueError(
                "payouts by razorpayx need razorpayx_key_id, razorpayx_key_secret and razorpayx_account_number"
            )
        unknown = self.two_person_kinds() - {"payouts", "top-ups", "roles"}
        if unknown:
            raise ValueError(f"two_person accepts payouts, top-ups and roles, not {', '.join(sorted(unknown))}")
        try:
            self.webhook_networks()
        except ValueError as error:
            raise ValueError(f"webhook_private: {error}") from None
        try:
            self.image_networks()
            self.allowed_registries()
        except ValueError as error:
            raise ValueError(f"image_private or image_registries: {error}") from None
        return self

    def two_person_kinds(self) -> frozenset[str]:
        """Any kind implies roles, or one administrator could create the second one."""
        named = frozenset(word.strip() for word in self.two_person.split(",") if word.strip())
        return named | {"roles"} if named else named

    def webhook_networks(self) -> tuple[Network, ...]:
        return parse_networks(filter(None, self.webhook_private.split(",")))

    def image_networks(self) -> tuple[Network, ...]:
        return parse_networks(filter(None, self.image_private.split(",")))

    def allowed_registries(self) -> list[str]:
        """Uploaded images are always allowed."""
        named = [word.strip() for word in self.image_registries.split(",") if word.strip()]
        return [UPLOADED, *map(check_registries, named)]

    @property
    def url(self) -> str:
        return self.database_url or f"sqlite:///{(self.data_dir / 'hub.sqlite').absolute()}"

    @property
    def address(self) -> str:
        return self.public_url.rstrip("/") or local_address.url_of(self.host, self.port)

    @property
    def prefix(self) -> str:
        """The path under which a proxy serves this hub; usually empty."""
        return urlsplit(self.address).path

    def origins(self) -> frozenset[str]:
        """The origins whose pages may use a person's cookie, besides the requested host itself."""
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
            not_own=self.payout_two_persons,
            two_approvals="payouts" in self.two_person_kinds(),
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
