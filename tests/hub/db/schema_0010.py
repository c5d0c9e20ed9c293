"""The whole schema as it was at 0010, in SQL that both databases read: where the migrations begin."""

from __future__ import annotations

from sqlalchemy import create_engine, text

from computepool.hub.db import dialect

SCHEMA = "0010"
_REFUSED = "transfers are never changed or removed"


def make(url: str) -> None:
    """An empty database of this schema."""
    if dialect.is_sqlite(url):
        numbers = {"serial": "INTEGER", "event_seq": "seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT"}
        triggers = _SQLITE_TRIGGERS
    else:
        numbers = {"serial": "BIGSERIAL", "event_seq": "seq BIGSERIAL CONSTRAINT pk_events PRIMARY KEY"}
        triggers = _POSTGRESQL_TRIGGERS
    engine = create_engine(dialect.postgres_url(url))
    with engine.begin() as connection:
        for statement in (*_TABLES.format(**numbers).strip().rstrip(";").split(";"), *triggers, *_VERSION):
            connection.execute(text(statement))
    engine.dispose()


_SQLITE_TRIGGERS = [
    f"CREATE TRIGGER transfers_{event.lower()} BEFORE {event} ON transfers BEGIN SELECT RAISE(ABORT, '{_REFUSED}'); END"
    for event in ("UPDATE", "DELETE")
]
_FUNCTION = f"refuse_transfer_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{_REFUSED}'; END $$"
_REFUSE = "EXECUTE FUNCTION refuse_transfer_change()"
_POSTGRESQL_TRIGGERS = [
    f"CREATE FUNCTION {_FUNCTION}",
    f"CREATE TRIGGER transfers_change BEFORE UPDATE OR DELETE ON transfers FOR EACH ROW {_REFUSE}",
    f"CREATE TRIGGER transfers_truncate BEFORE TRUNCATE ON transfers FOR EACH STATEMENT {_REFUSE}",
]
_VERSION = [
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)",
    f"INSERT INTO alembic_version VALUES ('{SCHEMA}')",
]
_TABLES = """
CREATE TABLE accounts (
    id TEXT NOT NULL, name TEXT NOT NULL, roles TEXT NOT NULL, created_at_ms BIGINT NOT NULL, floor BIGINT,
    jobs_open_max INTEGER, spend_per_day_max BIGINT, artifact_bytes_max BIGINT, artifact_keep_s BIGINT,
    CONSTRAINT pk_accounts PRIMARY KEY (id), CONSTRAINT uq_accounts_name UNIQUE (name)
);
CREATE TABLE secrets (
    name TEXT NOT NULL, value TEXT NOT NULL, created_at_ms BIGINT NOT NULL,
    CONSTRAINT pk_secrets PRIMARY KEY (name)
);
CREATE TABLE hubs (
    id TEXT NOT NULL, address TEXT NOT NULL, seen_at_ms BIGINT NOT NULL,
    CONSTRAINT pk_hubs PRIMARY KEY (id)
);
CREATE TABLE specs (
    digest TEXT NOT NULL, body TEXT NOT NULL, created_at_ms BIGINT NOT NULL, account_id TEXT,
    CONSTRAINT pk_specs PRIMARY KEY (digest)
);
CREATE TABLE artifacts (
    digest TEXT NOT NULL, size BIGINT NOT NULL, created_at_ms BIGINT NOT NULL, place TEXT DEFAULT '' NOT NULL,
    CONSTRAINT pk_artifacts PRIMARY KEY (digest)
);
CREATE TABLE log_chunks (
    seq {serial} NOT NULL, job_id TEXT NOT NULL, attempt_id TEXT NOT NULL, stream TEXT NOT NULL,
    text TEXT NOT NULL,
    CONSTRAINT pk_log_chunks PRIMARY KEY (seq)
);
CREATE INDEX ix_log_chunks_job ON log_chunks (job_id, seq);
CREATE TABLE events (
    {event_seq}, at_ms BIGINT NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL, account_id TEXT,
    job_id TEXT, attempt_id TEXT, node_id TEXT, group_id TEXT, "before" TEXT, "after" TEXT, reason TEXT,
    final BOOLEAN NOT NULL, data TEXT
);
CREATE INDEX ix_events_account ON events (account_id, seq);
CREATE INDEX ix_events_job ON events (job_id);
CREATE INDEX ix_events_results ON events (group_id, seq) WHERE final AND group_id IS NOT NULL;
CREATE INDEX ix_events_node ON events (node_id, seq) WHERE node_id IS NOT NULL;
CREATE INDEX ix_events_group ON events (group_id, seq) WHERE coalesce(group_id, '') <> '';
CREATE INDEX ix_events_deeds ON events (action, seq) WHERE coalesce(job_id, '') = '';
CREATE TABLE idempotency (
    account_id TEXT NOT NULL, route TEXT NOT NULL, "key" TEXT NOT NULL, request_hash TEXT NOT NULL,
    reply TEXT NOT NULL, created_at_ms BIGINT NOT NULL,
    CONSTRAINT pk_idempotency PRIMARY KEY (account_id, route, "key")
);
CREATE INDEX ix_idempotency_created_at_ms ON idempotency (created_at_ms);
CREATE TABLE api_keys (
    id TEXT NOT NULL, account_id TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, hash TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL, expires_at_ms BIGINT, last_used_ms BIGINT, revoked_at_ms BIGINT,
    scopes TEXT,
    CONSTRAINT pk_api_keys PRIMARY KEY (id),
    CONSTRAINT fk_api_keys_account_id FOREIGN KEY(account_id) REFERENCES accounts (id)
);
CREATE INDEX ix_api_keys_account_id ON api_keys (account_id);
CREATE TABLE codes (
    hash TEXT NOT NULL, purpose TEXT NOT NULL, account_id TEXT NOT NULL, expires_at_ms BIGINT NOT NULL,
    used_at_ms BIGINT, uses INTEGER DEFAULT 0 NOT NULL, uses_max INTEGER,
    CONSTRAINT pk_codes PRIMARY KEY (hash),
    CONSTRAINT fk_codes_account_id FOREIGN KEY(account_id) REFERENCES accounts (id)
);
CREATE TABLE nodes (
    id TEXT NOT NULL, name TEXT NOT NULL, account_id TEXT NOT NULL, public_key TEXT NOT NULL,
    state TEXT NOT NULL, profile TEXT NOT NULL, enrolled_at_ms BIGINT NOT NULL, last_seen_ms BIGINT,
    boot_id TEXT, consecutive_faults INTEGER DEFAULT '0' NOT NULL,
    cool_off_until_ms BIGINT DEFAULT '0' NOT NULL, floor BIGINT, rules TEXT, previous_key TEXT,
    previous_key_until_ms BIGINT, online_since_ms BIGINT, known_since_ms BIGINT, code TEXT, departure TEXT,
    CONSTRAINT pk_nodes PRIMARY KEY (id),
    CONSTRAINT fk_nodes_account_id FOREIGN KEY(account_id) REFERENCES accounts (id),
    CONSTRAINT uq_nodes_public_key UNIQUE (public_key)
);
CREATE INDEX ix_nodes_account_id ON nodes (account_id);
CREATE TABLE groups (
    id TEXT NOT NULL, account_id TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL, watched BOOLEAN DEFAULT false NOT NULL,
    expected INTEGER DEFAULT '0' NOT NULL, duplicates INTEGER DEFAULT '0' NOT NULL, completed_at_ms BIGINT,
    rounds INTEGER DEFAULT '0' NOT NULL, home TEXT, return_home BOOLEAN DEFAULT false NOT NULL,
    home_state TEXT, home_at_ms BIGINT, home_reason TEXT, home_arrival TEXT,
    CONSTRAINT pk_groups PRIMARY KEY (id),
    CONSTRAINT fk_groups_account_id FOREIGN KEY(account_id) REFERENCES accounts (id)
);
CREATE INDEX ix_groups_account_id ON groups (account_id);
CREATE INDEX ix_groups_home ON groups (home) WHERE home_state = 'waiting';
CREATE TABLE artifact_refs (
    digest TEXT NOT NULL, account_id TEXT NOT NULL, job_id TEXT NOT NULL, role TEXT NOT NULL,
    name TEXT NOT NULL, created_at_ms BIGINT NOT NULL, kept_until_ms BIGINT,
    CONSTRAINT pk_artifact_refs PRIMARY KEY (digest, account_id, job_id, role, name),
    CONSTRAINT fk_artifact_refs_digest FOREIGN KEY(digest) REFERENCES artifacts (digest)
);
CREATE INDEX ix_artifact_refs_job ON artifact_refs (job_id);
CREATE INDEX ix_artifact_refs_node ON artifact_refs (created_at_ms) WHERE role = 'node';
CREATE INDEX ix_artifact_refs_account ON artifact_refs (account_id, created_at_ms);
CREATE INDEX ix_artifact_refs_created ON artifact_refs (created_at_ms);
CREATE TABLE jobs (
    id TEXT NOT NULL, account_id TEXT NOT NULL, group_id TEXT, "key" TEXT, item INTEGER NOT NULL,
    item_count INTEGER NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, spec_digest TEXT NOT NULL,
    priority INTEGER NOT NULL, retries INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL,
    attempt_no INTEGER NOT NULL, accepted_attempt INTEGER, node_id TEXT, avoid_node TEXT DEFAULT '' NOT NULL,
    job_faults INTEGER NOT NULL, node_faults INTEGER NOT NULL, deps_pending INTEGER NOT NULL,
    ready_at_ms BIGINT NOT NULL, queued_at_ms BIGINT NOT NULL, created_at_ms BIGINT NOT NULL,
    started_at_ms BIGINT, finished_at_ms BIGINT, expires_at_ms BIGINT NOT NULL, exit_code INTEGER,
    progress FLOAT, error TEXT, result TEXT, result_artifact TEXT, payload TEXT, payload_artifact TEXT,
    ceiling BIGINT DEFAULT '0' NOT NULL, hold BIGINT DEFAULT '0' NOT NULL,
    hold_earned BIGINT DEFAULT '0' NOT NULL, longest_ms BIGINT DEFAULT '0' NOT NULL, charge BIGINT,
    verify TEXT DEFAULT 'none' NOT NULL, compare TEXT, comparing TEXT, runs INTEGER DEFAULT '1' NOT NULL,
    results INTEGER DEFAULT '0' NOT NULL, avoid_owners TEXT DEFAULT '' NOT NULL, verdict TEXT, errand TEXT,
    behalf TEXT, taken_back BIGINT, watched BOOLEAN DEFAULT false NOT NULL,
    bundled INTEGER DEFAULT '1' NOT NULL, items_failed INTEGER DEFAULT '0' NOT NULL, checkpoint_no INTEGER,
    pinned TEXT DEFAULT '' NOT NULL, moves INTEGER DEFAULT '0' NOT NULL, carried INTEGER, ttl_ms BIGINT,
    held_until_ms BIGINT, dropped_at_ms BIGINT,
    CONSTRAINT pk_jobs PRIMARY KEY (id), CONSTRAINT ck_jobs_deps_pending CHECK (deps_pending >= 0),
    CONSTRAINT uq_jobs_group_id_key UNIQUE (group_id, "key"),
    CONSTRAINT fk_jobs_account_id FOREIGN KEY(account_id) REFERENCES accounts (id),
    CONSTRAINT fk_jobs_group_id FOREIGN KEY(group_id) REFERENCES groups (id),
    CONSTRAINT fk_jobs_spec_digest FOREIGN KEY(spec_digest) REFERENCES specs (digest)
);
CREATE INDEX ix_jobs_group ON jobs (group_id, id);
CREATE INDEX ix_jobs_ttl ON jobs (expires_at_ms) WHERE state = 'queued';
CREATE INDEX ix_jobs_open ON jobs (state, queued_at_ms, id) WHERE state IN ('queued', 'leased', 'running');
CREATE INDEX ix_jobs_account ON jobs (account_id, id);
CREATE UNIQUE INDEX ix_jobs_errand ON jobs (errand) WHERE errand IS NOT NULL;
CREATE INDEX ix_jobs_watched ON jobs (group_id) WHERE watched AND state IN ('queued', 'leased', 'running');
CREATE INDEX ix_jobs_held ON jobs (held_until_ms) WHERE held_until_ms > 0;
CREATE TABLE dependencies (
    job_id TEXT NOT NULL, after_id TEXT NOT NULL,
    CONSTRAINT pk_dependencies PRIMARY KEY (job_id, after_id),
    CONSTRAINT fk_dependencies_job_id FOREIGN KEY(job_id) REFERENCES jobs (id),
    CONSTRAINT fk_dependencies_after_id FOREIGN KEY(after_id) REFERENCES jobs (id)
);
CREATE INDEX ix_dependencies_after_id ON dependencies (after_id);
CREATE TABLE attempts (
    id TEXT NOT NULL, job_id TEXT NOT NULL, number INTEGER NOT NULL, node_id TEXT NOT NULL,
    owner_id TEXT NOT NULL, lane TEXT NOT NULL, gpus TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL,
    lease_until_ms BIGINT NOT NULL, leased_at_ms BIGINT NOT NULL, started_at_ms BIGINT, finished_at_ms BIGINT,
    report_digest TEXT, exit_code INTEGER, error TEXT, usage TEXT, log_bytes BIGINT DEFAULT '0' NOT NULL,
    price BIGINT DEFAULT '0' NOT NULL, spot BIGINT DEFAULT '0' NOT NULL, units INTEGER DEFAULT '0' NOT NULL,
    zone_tier TEXT DEFAULT '' NOT NULL, zone_region TEXT DEFAULT '' NOT NULL,
    price_version INTEGER DEFAULT '0' NOT NULL, billed_ms BIGINT, lane_since_ms BIGINT DEFAULT '0' NOT NULL,
    lane_billed_ms BIGINT, charge BIGINT, outcome TEXT, streak INTEGER DEFAULT '0' NOT NULL, result TEXT,
    result_artifact TEXT, outputs TEXT, printed TEXT, items_failed INTEGER DEFAULT '0' NOT NULL,
    resumed_no INTEGER, resumed_ms BIGINT, covered_ms BIGINT, spent BIGINT, checkpoint_ms BIGINT,
    narrow BOOLEAN DEFAULT false NOT NULL, log_next BIGINT DEFAULT '0' NOT NULL,
    stdout_chars BIGINT DEFAULT '0' NOT NULL, printed_chars BIGINT,
    CONSTRAINT pk_attempts PRIMARY KEY (id), CONSTRAINT uq_attempts_job_id_number UNIQUE (job_id, number),
    CONSTRAINT fk_attempts_job_id FOREIGN KEY(job_id) REFERENCES jobs (id),
    CONSTRAINT fk_attempts_node_id FOREIGN KEY(node_id) REFERENCES nodes (id)
);
CREATE INDEX ix_attempts_live ON attempts (node_id) WHERE state IN ('leased', 'running');
CREATE INDEX ix_attempts_lease ON attempts (lease_until_ms) WHERE state IN ('leased', 'running');
CREATE INDEX ix_attempts_lane ON attempts (lane, lane_billed_ms) WHERE lane_billed_ms IS NOT NULL;
CREATE INDEX ix_attempts_results ON attempts (node_id, finished_at_ms) WHERE outcome IS NOT NULL;
CREATE INDEX ix_attempts_late ON attempts (node_id) WHERE state = 'expired';
CREATE TABLE transfers (
    seq BIGINT NOT NULL, tx_key TEXT NOT NULL, leg INTEGER NOT NULL, debit TEXT NOT NULL,
    credit TEXT NOT NULL, amount BIGINT NOT NULL, kind TEXT NOT NULL, job_id TEXT, ref TEXT,
    at_ms BIGINT NOT NULL, hash TEXT NOT NULL,
    CONSTRAINT pk_transfers PRIMARY KEY (seq), CONSTRAINT ck_transfers_amount CHECK (amount > 0),
    CONSTRAINT ck_transfers_sides CHECK (debit <> credit),
    CONSTRAINT uq_transfers_tx_key_leg UNIQUE (tx_key, leg)
);
CREATE INDEX ix_transfers_debit ON transfers (debit, seq);
CREATE INDEX ix_transfers_credit ON transfers (credit, seq);
CREATE TABLE balances (
    account TEXT NOT NULL, balance BIGINT NOT NULL, can_overdraw BOOLEAN NOT NULL,
    CONSTRAINT pk_balances PRIMARY KEY (account),
    CONSTRAINT ck_balances_covered CHECK (balance >= 0 OR can_overdraw)
);
CREATE TABLE price_tables (
    version INTEGER NOT NULL, body TEXT NOT NULL, created_by TEXT NOT NULL, created_at_ms BIGINT NOT NULL,
    CONSTRAINT pk_price_tables PRIMARY KEY (version)
);
CREATE TABLE spots (
    tier TEXT NOT NULL, region TEXT NOT NULL, tick BIGINT NOT NULL, price BIGINT NOT NULL,
    capacity BIGINT NOT NULL, demand BIGINT NOT NULL, price_version INTEGER NOT NULL,
    CONSTRAINT pk_spots PRIMARY KEY (tier, region, tick)
);
CREATE INDEX ix_spots_tick ON spots (tick);
CREATE TABLE market_counts (
    hub_id TEXT NOT NULL, tier TEXT NOT NULL, region TEXT NOT NULL, tick BIGINT NOT NULL,
    capacity BIGINT NOT NULL, demand BIGINT NOT NULL,
    CONSTRAINT pk_market_counts PRIMARY KEY (hub_id, tier, region)
);
CREATE TABLE payouts (
    id TEXT NOT NULL, account_id TEXT NOT NULL, amount BIGINT NOT NULL, method TEXT NOT NULL,
    target TEXT NOT NULL, provider TEXT NOT NULL, state TEXT NOT NULL, reason TEXT DEFAULT '' NOT NULL,
    provider_ref TEXT, approved_by TEXT, tries INTEGER DEFAULT '0' NOT NULL,
    next_try_ms BIGINT DEFAULT '0' NOT NULL, created_at_ms BIGINT NOT NULL, updated_at_ms BIGINT NOT NULL,
    CONSTRAINT pk_payouts PRIMARY KEY (id), CONSTRAINT ck_payouts_amount CHECK (amount > 0),
    CONSTRAINT fk_payouts_account_id FOREIGN KEY(account_id) REFERENCES accounts (id),
    CONSTRAINT uq_payouts_provider_ref UNIQUE (provider_ref)
);
CREATE INDEX ix_payouts_account ON payouts (account_id, id);
CREATE INDEX ix_payouts_undecided ON payouts (next_try_ms) WHERE state NOT IN ('paid', 'failed', 'rejected');
CREATE TABLE reputations (
    node_id TEXT NOT NULL, success BIGINT NOT NULL, failure BIGINT NOT NULL, changed_at_ms BIGINT NOT NULL,
    lost_at_ms BIGINT NOT NULL, successes BIGINT NOT NULL, failures BIGINT NOT NULL, dues BIGINT NOT NULL,
    tenure_days INTEGER NOT NULL, tenure_day INTEGER NOT NULL, verified BIGINT NOT NULL,
    verified_days INTEGER NOT NULL, verified_day INTEGER NOT NULL, streak BIGINT NOT NULL,
    strikes BIGINT NOT NULL, struck_at_ms BIGINT NOT NULL, banned_at_ms BIGINT NOT NULL,
    violations TEXT DEFAULT '' NOT NULL, probation_at_ms BIGINT DEFAULT '0' NOT NULL,
    cleared_at_ms BIGINT DEFAULT '0' NOT NULL, probes_right INTEGER DEFAULT '0' NOT NULL,
    probes_wrong INTEGER DEFAULT '0' NOT NULL,
    CONSTRAINT pk_reputations PRIMARY KEY (node_id)
);
CREATE TABLE conducts (
    account_id TEXT NOT NULL, success BIGINT NOT NULL, failure BIGINT NOT NULL, changed_at_ms BIGINT NOT NULL,
    completed BIGINT NOT NULL, failed BIGINT NOT NULL, harmful BIGINT NOT NULL, cancelled BIGINT NOT NULL,
    CONSTRAINT pk_conducts PRIMARY KEY (account_id)
);
CREATE INDEX ix_conducts_changed_at_ms ON conducts (changed_at_ms);
CREATE TABLE hardware (
    node_id TEXT NOT NULL, body TEXT NOT NULL,
    CONSTRAINT pk_hardware PRIMARY KEY (node_id)
);
CREATE TABLE signing_keys (
    kid TEXT NOT NULL, number INTEGER NOT NULL, public_key TEXT NOT NULL, private_key TEXT,
    created_at_ms BIGINT NOT NULL, starts_at_ms BIGINT, ends_at_ms BIGINT, endorsed_by TEXT, endorsement TEXT,
    CONSTRAINT pk_signing_keys PRIMARY KEY (kid), CONSTRAINT uq_signing_keys_number UNIQUE (number)
);
CREATE TABLE approvals (
    id TEXT NOT NULL, kind TEXT NOT NULL, request TEXT NOT NULL, asked_by TEXT NOT NULL,
    asked_at_ms BIGINT NOT NULL, state TEXT NOT NULL, decided_by TEXT, decided_at_ms BIGINT, reason TEXT,
    CONSTRAINT pk_approvals PRIMARY KEY (id),
    CONSTRAINT fk_approvals_asked_by FOREIGN KEY(asked_by) REFERENCES accounts (id)
);
CREATE TABLE varying_specs (
    account_id TEXT NOT NULL, spec_digest TEXT NOT NULL,
    CONSTRAINT pk_varying_specs PRIMARY KEY (account_id, spec_digest)
);
CREATE TABLE expected_jobs (
    group_id TEXT NOT NULL, "key" TEXT NOT NULL, state TEXT NOT NULL, meta TEXT, result TEXT, error TEXT,
    duplicates INTEGER DEFAULT '0' NOT NULL, registered_at_ms BIGINT NOT NULL, reported_at_ms BIGINT,
    CONSTRAINT pk_expected_jobs PRIMARY KEY (group_id, "key"),
    CONSTRAINT fk_expected_jobs_group_id FOREIGN KEY(group_id) REFERENCES groups (id)
);
CREATE INDEX ix_expected_jobs_pending ON expected_jobs (group_id, "key") WHERE state = 'pending';
CREATE TABLE checkpoints (
    job_id TEXT NOT NULL, attempt_no INTEGER NOT NULL, seq INTEGER NOT NULL, at_ms BIGINT NOT NULL,
    attempt_ms BIGINT NOT NULL, covered_ms BIGINT NOT NULL, spent BIGINT NOT NULL, progress FLOAT,
    size BIGINT NOT NULL, files TEXT NOT NULL, last BOOLEAN NOT NULL, failures INTEGER NOT NULL,
    CONSTRAINT pk_checkpoints PRIMARY KEY (job_id),
    CONSTRAINT fk_checkpoints_job_id FOREIGN KEY(job_id) REFERENCES jobs (id)
);
CREATE TABLE webhooks (
    id TEXT NOT NULL, account_id TEXT NOT NULL, url TEXT NOT NULL, events TEXT NOT NULL,
    cursor BIGINT NOT NULL, created_at_ms BIGINT NOT NULL, failing_since_ms BIGINT,
    failures INTEGER DEFAULT '0' NOT NULL, next_call_ms BIGINT DEFAULT '0' NOT NULL, disabled_at_ms BIGINT,
    disabled_reason TEXT,
    CONSTRAINT pk_webhooks PRIMARY KEY (id),
    CONSTRAINT fk_webhooks_account_id FOREIGN KEY(account_id) REFERENCES accounts (id)
);
CREATE INDEX ix_webhooks_account_id ON webhooks (account_id);
CREATE TABLE deliveries (
    id TEXT NOT NULL, webhook_id TEXT NOT NULL, event TEXT NOT NULL, body TEXT NOT NULL, state TEXT NOT NULL,
    tries INTEGER DEFAULT '0' NOT NULL, next_try_ms BIGINT NOT NULL, status INTEGER, reason TEXT,
    created_at_ms BIGINT NOT NULL, ended_at_ms BIGINT,
    CONSTRAINT pk_deliveries PRIMARY KEY (id)
);
CREATE INDEX ix_deliveries_webhook ON deliveries (webhook_id, id);
CREATE INDEX ix_deliveries_created ON deliveries (created_at_ms);
CREATE INDEX ix_deliveries_due ON deliveries (webhook_id, next_try_ms) WHERE state = 'pending';
CREATE TABLE attempt_usage (
    attempt_id TEXT NOT NULL, job_id TEXT NOT NULL, saved_at_ms BIGINT NOT NULL, body TEXT NOT NULL,
    CONSTRAINT pk_attempt_usage PRIMARY KEY (attempt_id),
    CONSTRAINT fk_attempt_usage_attempt_id FOREIGN KEY(attempt_id) REFERENCES attempts (id)
);
CREATE INDEX ix_attempt_usage_job_id ON attempt_usage (job_id);
CREATE INDEX ix_attempt_usage_saved_at_ms ON attempt_usage (saved_at_ms);
CREATE TABLE node_spans (
    node_id TEXT NOT NULL, since_ms BIGINT NOT NULL, until_ms BIGINT NOT NULL,
    CONSTRAINT pk_node_spans PRIMARY KEY (node_id, since_ms),
    CONSTRAINT fk_node_spans_node_id FOREIGN KEY(node_id) REFERENCES nodes (id)
);
CREATE INDEX ix_node_spans_until_ms ON node_spans (until_ms);
CREATE TABLE inline_storage (
    account_id TEXT NOT NULL, bytes BIGINT NOT NULL,
    CONSTRAINT pk_inline_storage PRIMARY KEY (account_id)
);
CREATE TABLE child_jobs (
    job_id TEXT NOT NULL, parent_id TEXT NOT NULL, root_id TEXT NOT NULL, depth INTEGER NOT NULL,
    detached BOOLEAN NOT NULL,
    CONSTRAINT pk_child_jobs PRIMARY KEY (job_id),
    CONSTRAINT fk_child_jobs_parent_id FOREIGN KEY(parent_id) REFERENCES jobs (id),
    CONSTRAINT fk_child_jobs_root_id FOREIGN KEY(root_id) REFERENCES jobs (id)
);
CREATE INDEX ix_child_jobs_parent_id ON child_jobs (parent_id);
CREATE INDEX ix_child_jobs_root_id ON child_jobs (root_id);
CREATE TABLE child_groups (
    group_id TEXT NOT NULL, root_id TEXT NOT NULL,
    CONSTRAINT pk_child_groups PRIMARY KEY (group_id),
    CONSTRAINT fk_child_groups_group_id FOREIGN KEY(group_id) REFERENCES groups (id),
    CONSTRAINT fk_child_groups_root_id FOREIGN KEY(root_id) REFERENCES jobs (id)
);
CREATE INDEX ix_child_groups_root_id ON child_groups (root_id);
CREATE TABLE messages (
    group_id TEXT NOT NULL, number INTEGER NOT NULL, job_id TEXT NOT NULL, attempt_no INTEGER NOT NULL,
    seq INTEGER NOT NULL, at_ms BIGINT NOT NULL, value TEXT NOT NULL,
    CONSTRAINT pk_messages PRIMARY KEY (group_id, number),
    CONSTRAINT fk_messages_group_id FOREIGN KEY(group_id) REFERENCES groups (id),
    CONSTRAINT fk_messages_job_id FOREIGN KEY(job_id) REFERENCES jobs (id)
);
CREATE UNIQUE INDEX ux_messages_attempt ON messages (job_id, attempt_no, seq);
"""
