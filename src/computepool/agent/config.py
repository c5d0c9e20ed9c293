"""The options of a node, and every limit of the agent by name. Values only."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from computepool.core.errors import BadRequest
from computepool.core.isolation import Level
from computepool.core.network import parse_networks, parse_targets, target_of
from computepool.core.places import parse_place
from computepool.protocol.jobs.jobs import RESULT_MAX

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

SANDBOX_CHOICES = ("auto", *(level.label for level in Level))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLimits:
    """Named maximums and periods. Tests scale them down; owners rarely need to touch them."""

    # logs
    #: Sent per attempt, at least LOG_SENT_MIN; the rest is dropped, and a line says so.
    log_bytes_max: int = 5_000_000
    output_bytes_max: int = 256 * MIB  #: an attempt that writes more to stdout and stderr is ended
    log_chunk_max: int = 64 * KIB
    log_pending_chunks_max: int = 1_024  #: beyond this, the relative order of the two streams is lost
    log_flush_s: float = 0.2
    log_request_chunks_max: int = 256
    log_request_chars_max: int = 1 * MIB
    log_inline_chars_max: int = 128 * KIB  #: the last output of an attempt travels with its report up to this
    log_inline_chunks_max: int = 32  #: and in at most this many chunks
    # results and outputs
    outputs_max: int = 1_000
    outputs_bytes_max: int = 20 * GIB
    result_bytes_max: int = RESULT_MAX
    input_cache_bytes: int = 20 * GIB
    transfer_chunk: int = 1 * MIB
    transfers_max: int = 4
    result_deliveries_max: int = 2  #: groups fetched at the same time
    home_spare_bytes: int = 512 * MIB  #: that they leave free on the disk
    # checkpoints
    checkpoint_gap_s: float = 15.0  #: between two of an attempt, at least; an earlier one waits
    checkpoint_files_max: int = 999
    checkpoint_bytes_max: int = 20 * GIB
    checkpoint_printed_max: int = 1 * MIB  #: of a program's output, so that its results can be compared as a whole
    checkpoint_transfer_s: float = 900.0  #: to send or to fetch one
    checkpoint_grace_s: float = 20.0  #: for jobs to make one when this agent stops
    # calls of jobs to the hub
    calls_open_max: int = 8  #: per attempt; others wait
    #: Of all attempts. Far below the client's connections, so that the agent's own requests never wait for a job's.
    calls_relayed_max: int = 16
    call_bytes_max: int = 2 * MIB
    # reports
    outbox_age_max_s: float = 24 * 3600.0
    batch_reports_max: int = 500
    batch_bytes_max: int = 4 * MIB
    stop_flush_s: float = 5.0
    goodbye_s: float = 2.0
    remembered_attempts_max: int = 100_000  #: finished attempts that are recognised when granted again
    # requests to the hub
    retry_base_s: float = 1.0
    retry_max_s: float = 60.0
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 60.0
    poll_slack_s: float = 15.0  #: a parked poll may take this much longer than it requested
    speed_test_bytes: int = 256 * KIB  #: sent to the hub and received again when the agent starts; 0: no test
    speed_test_s: float = 5.0  #: after which this test is given up
    busy_gap_s: float = 0.04  #: between requests while attempts wait in their lanes: fewer requests with more in each
    short_job_s: float = 0.005  #: after new jobs the next poll waits for their reports, at most so long
    idle_pause_s: float = 0.5  #: at most, between polls that the hub answers early and without work
    # attempts
    tick_s: float = 0.1
    announce_after_s: float = 0.2  #: attempts that run longer are shown as running at once
    heartbeat_gap_s: float = 0.2
    progress_gap_s: float = 1.0
    give_back_after_s: float = 0.5  #: if the head of a lane runs longer, those behind it are given back
    give_back_unstarted_s: float = 3.0  #: the same while its worker, packages or inputs are being prepared
    patrol_s: float = 1.0
    load_detail_s: float = 120.0  #: younger attempts also report load samples between two polls
    # what the owner sees
    console_lines_max: int = 8  #: about jobs in a terminal, per window; the rest is counted
    console_window_s: float = 2.0
    agent_log_bytes: int = 5_000_000  #: size at which the log in the node's folder is rotated; one earlier log is kept
    # warm workers
    workers_max: int = 64
    worker_idle_s: float = 60.0
    worker_jobs_max: int = 20_000
    worker_functions_max: int = 256
    worker_start_s: float = 30.0
    worker_ahead_max: int = 16  #: short calls handed to a worker before it asks
    worker_ahead_below_s: float = 0.01  #: only while calls are shorter than this
    # network of a job that lists hosts
    net_connections_max: int = 64  #: at once
    net_bytes_max: int = 20 * GIB  #: both ways, per attempt
    net_idle_s: float = 300.0  #: after which an idle connection is closed
    net_connect_s: float = 15.0  #: to look a name up and connect
    net_head_s: float = 10.0  #: to send a whole request head
    net_head_bytes_max: int = 16 * KIB
    net_address_s: float = 600.0  #: between two checks of the addresses from which the hub sees this node
    net_ipv6_site_bits: int = 56  #: providers assign IPv6 blocks of this size to a household
    # environments
    environments_max: int = 32
    environments_bytes_max: int = 50 * GIB  #: of all together; the least recently used ones are evicted
    environment_bytes_max: int = 12 * GIB  #: of one, and of what its installation writes
    environment_install_s: float = 900.0
    environment_memory_mb: int = 2_048  #: for its installation, as the next three
    environment_cpus: float = 2.0
    environment_pids: int = 256
    environment_installs_max: int = 2  #: at once
    cache_report_s: float = 15.0  #: between two looks at what is cached, for the hub
    # other Pythons
    pythons_max: int = 8
    pythons_bytes_max: int = 4 * GIB  #: of all together; the least recently used ones are evicted
    python_bytes_max: int = 1 * GIB  #: of one, and of its download
    python_fetch_s: float = 600.0  #: to download one
    python_fit_s: float = 300.0  #: to copy the part that jobs get
    python_fit_memory_mb: int = 1_024  #: for this copy


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    hub_url: str  #: one address, or several separated by commas: if one fails, the next one is tried
    data_dir: Path
    code: str | None = None  #: one-time enrolment code; needed only where there is no identity yet
    name: str = field(default_factory=lambda: platform.node() or "node")
    tags: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    region: str = ""
    place: str = ""  #: latitude,longitude on the map; empty: in its region
    mesh_version: str = ""
    url: str = ""
    cores: float | None = None  #: to lend; None: all that the agent itself may use
    elastic: bool | None = None  #: jobs may use idle CPUs beyond their own; None: only the owner's jobs
    ram_mb: int | None = None
    disk_mb: int | None = None
    gpus: bool | None = None  #: lend the cards to everybody; None: to the owner and trusted accounts; False: to nobody
    sandbox: str = "auto"  #: "auto": the strongest level that works here; a level's name: that level or none
    runtime_add: tuple[str, ...] = ()  #: further programs, files and folders of this machine that jobs see
    trusted: tuple[str, ...] = ()  #: accounts besides the owner whose jobs may run unsandboxed; "*": all
    network: bool = False  #: run jobs that list hosts to reach; their traffic comes from the owner's address
    net_private: tuple[str, ...] = ()  #: private networks such as 192.168.7.0/24 that these jobs may also list
    uv: str | None = None  #: path of the uv program; None: found on PATH or next to the interpreter
    package_index: str = ""  #: address of the index of jobs' packages; empty: uv's default
    package_index_hosts: tuple[str, ...] = ()  #: host:port of its files; none: those that the index names
    fetch_python: bool = False  #: run jobs with other minor versions of Python, which uv downloads
    python_mirror: str = ""  #: their address, or a list of downloads (.json); empty: uv's default
    kept: tuple[str, ...] = ()  #: fields with values of an earlier start (saved_options.py)
    limits: AgentLimits = AgentLimits()

    def __post_init__(self) -> None:
        if not self.hub_urls:
            raise BadRequest("Give the hub's address, for example http://hub.example:8000.", field="hub_url")
        if self.sandbox not in SANDBOX_CHOICES:
            raise BadRequest(f"The sandbox must be one of {', '.join(SANDBOX_CHOICES)}.", field="sandbox")
        for name, value in (("cores", self.cores), ("ram_mb", self.ram_mb), ("disk_mb", self.disk_mb)):
            if value is not None and value <= 0:
                raise BadRequest(f"{name} must be more than 0.", field=name)
        for field_name, parse in (
            ("place", self.stated_place),
            ("net_private", lambda: parse_networks(self.net_private)),
            ("package_index", lambda: parse_targets(self.package_index_hosts)),
            ("package_index", lambda: self.package_index and target_of(self.package_index)),
        ):
            try:
                parse()
            except ValueError as error:
                raise BadRequest(f"{error}.", field=field_name) from error
        if "@" in self.package_index:  # Installations of untrusted jobs use it.
            raise BadRequest("The package index must not contain a user name or password.", field="package_index")
        mirror = self.python_mirror
        if mirror and "://" not in mirror and not (mirror.startswith("/") and mirror.endswith(".json")):
            raise BadRequest(
                "The Python mirror must be a URL, or the full path of a download list (.json).", field="python_mirror"
            )

    def stated_place(self) -> tuple[float, float] | None:
        """Raises ValueError."""
        return parse_place(self.place) if self.place else None

    @property
    def hub_urls(self) -> tuple[str, ...]:
        return tuple(url.strip().rstrip("/") for url in self.hub_url.split(",") if url.strip())

    @property
    def identity_path(self) -> Path:
        return self.data_dir / "identity.json"

    @property
    def paused_path(self) -> Path:
        """Exists while the owner has paused the node."""
        return self.data_dir / "paused"

    @property
    def outbox_dir(self) -> Path:
        return self.data_dir / "outbox"

    @property
    def cache_dir(self) -> Path:
        return self.data_dir / "cache"

    @property
    def work_dir(self) -> Path:
        return self.data_dir / "work"


def prepare_data_dir(path: Path) -> None:
    """Create the agent's folder. A root agent gives each job its own uid, which must be able to traverse it."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o711 if os.geteuid() == 0 else 0o700)
