"""Examples in the API's document. Tests validate each of them and send the requests to a real hub."""

from __future__ import annotations

from typing import Any

_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_JOB = "job_01k9x3m4q7c2v8w5t6y0r1n2p3"
_NODE = "node_01k9x3ka3rje5bz8qg7w0m4d6f"
_ACCOUNT = "acc_01k9x3jz0n5h2d8s7k4t6b9v1x"
_GROUP = "grp_01k9x3n1w8e6r4t2y0p9m7k5j3"
_PAYOUT = "payout_01k9x3p6h3t8c5v2w7z4q9r1n0"
_AT_MS = 1_763_200_000_000

Example = dict[str, Any]
Examples = dict[str, Example]


def _one(summary: str, value: Example, **more: Example) -> Examples:
    found = {"example": {"summary": summary, "value": value}}
    return found | {name: {"summary": name.replace("_", " "), "value": other} for name, other in more.items()}


PROFILE: Example = {
    "name": "attic-pc",
    "cores": 8,
    "ram_mb": 32768,
    "disk_mb": 200000,
    "gpus": [{"name": "NVIDIA GeForce RTX 4090", "tier": "rtx-4090", "vram_mb": 24564}],
    "region": "eu",
    "tags": ["quiet"],
    "python": "3.11",
    "isolation": "namespace",
}
HEARTBEAT = _one(
    "An attempt has started",
    {"boot_id": "b7d2f1c4", "holding": [f"{_JOB}-1"], "running": [{"attempt_id": f"{_JOB}-1"}], "claim": False},
)


_CONTENT: Example = {"manifest": _DIGEST, "content": _DIGEST, "packs": [_DIGEST], "size": 20971526, "files": 2}


#: By the name of the request's schema.
REQUESTS: dict[str, Examples] = {
    "VolumeRequest": _one("A new volume", {"name": "data"}),
    "VersionRequest": _one("A version that started from the first", {"parent": 1, **_CONTENT}),
    "HeadRequest": _one("Back to the first version", {"version": 1, "expected": 2}),
    "SubmitRequest": {
        "command": {
            "summary": "A command",
            "value": {
                "spec": {
                    "kind": "command",
                    "name": "disk use",
                    "argv": ["du", "-sh", "."],
                    "needs": {"cores": 1, "ram_mb": 512},
                    "timeout_s": 60,
                }
            },
        },
        "script": {
            "summary": "A script on a GPU, tried again twice",
            "value": {
                "spec": {
                    "kind": "script",
                    "name": "train.py",
                    "source": "#!/usr/bin/env python3\nprint('training')\n",
                    "argv": ["--epochs", "3"],
                    "env": {"SEED": "7"},
                    "needs": {"cores": 4, "ram_mb": 8192, "gpus": 1, "vram_mb": 16384, "regions": ["eu"]},
                },
                "retries": 2,
                "priority": 10,
            },
        },
        "function": {
            "summary": "One Python function, three calls; the payloads are encoded arguments",
            "value": {
                "spec": {
                    "kind": "function",
                    "name": "square",
                    "function": "gAWVEQAAAAAAAACMBm1hdGguY5SMBHNxcnSUk5Qu",
                    "needs": {"cores": 1, "python": "3.11"},
                },
                "items": [
                    {"key": "2", "payload": "W1syXSx7fV0="},
                    {"key": "3", "payload": "W1szXSx7fV0="},
                    {"key": "4", "payload": "W1s0XSx7fV0="},
                ],
            },
        },
    },
    "ResubmitRequest": _one("At the price limit of the first one", {}, at_todays_prices={"terms": "today"}),
    "PreviewRequest": _one("Which nodes have a GPU with 16 GB?", {"needs": {"gpus": 1, "vram_mb": 16384}, "limit": 20}),
    "GroupRequest": _one("A group to submit jobs into", {"name": "sweep 7", "kind": "map"}),
    "RegisterKeysRequest": _one(
        "Two keys the group waits for", {"keys": [{"key": "seed-1", "meta": {"seed": 1}}, {"key": "seed-2"}]}
    ),
    "KeyReportsRequest": _one(
        "The outcomes of two keys",
        {
            "reports": [
                {"key": "seed-1", "outcome": "succeeded", "result": "0.93"},
                {"key": "seed-2", "outcome": "failed", "error": "it could not be created"},
            ]
        },
    ),
    "ReturnHomeRequest": {
        "to the home it has": {"summary": "Request delivery, or request it again", "value": {"enabled": True}},
        "cancel": {"summary": "Cancel delivery", "value": {"enabled": False}},
    },
    "DeliveryProblem": _one(
        "The disk is full", {"round": 1, "reason": "it needs 12 GB, but only 3 GB are free in /var/lib/computepool"}
    ),
    "ArrivalRequest": _one(
        "A result and its file",
        {
            "round": 1,
            "items": 1,
            "files": 1,
            "bytes": 4,
            "folder": f"home/sweep-7-{_GROUP}",
            "manifest": _DIGEST,
            "digests": [_DIGEST],
        },
    ),
    "RegisterRequest": _one(
        "A new node sends its code, its public key, and a proof that it holds the private key",
        {
            "code": "9d1f0c3a5b7e42868a1d3c5f7e9b0a24",
            "public_key": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
            "proof": "5VZDAMNgrHKQhuLMgG6CioSHfx645dl02HPgZSJJAVVfuIIVkKM7rMYeOXAc-bRr0lvyJqvCn_SJb1_bVXvnCw",
            "protocol": 1,
            "profile": PROFILE,
        },
    ),
    "NextRequest": _one(
        "The first poll of an agent includes its profile",
        {"boot_id": "b7d2f1c4", "holding": [], "wait_ms": 10000, "profile": PROFILE},
        while_running={
            "boot_id": "b7d2f1c4",
            "holding": [f"{_JOB}-1"],
            "running": [{"attempt_id": f"{_JOB}-1", "progress": 0.25}],
            "wait_ms": 10000,
        },
    ),
    "CompleteRequest": _one(
        "An attempt that succeeded, with one output",
        {
            "reports": [
                {
                    "attempt_id": f"{_JOB}-1",
                    "outcome": "succeeded",
                    "reason": "completed",
                    "exit_code": 0,
                    "outputs": [{"name": "model.bin", "digest": _DIGEST, "size": 4}],
                    "ran_ms": 5210,
                    "usage": {"wall_ms": 5210, "cpu_ms": 19870, "peak_rss_mb": 811},
                }
            ],
            "signature": "A" * 86,
        },
        failed={
            "reports": [
                {
                    "attempt_id": f"{_JOB}-1",
                    "outcome": "failed",
                    "reason": "exit_nonzero",
                    "exit_code": 3,
                    "error": "ValueError: no such dataset",
                }
            ],
            "signature": "A" * 86,
        },
    ),
    "CheckpointReport": _one(
        "Two fifths are done; one file holds the state to resume from",
        {
            "attempt_id": f"{_JOB}-1",
            "seq": 3,
            "files": [{"name": "state.json", "digest": _DIGEST, "size": 4}],
            "progress": 0.4,
            "ran_ms": 120_000,
            "signature": "A" * 86,
        },
    ),
    "ChildrenRequest": _one(
        "A running job submits one more, which ends with it",
        {"seq": 1, "request": {"spec": {"kind": "command", "name": "hello", "argv": ["/bin/echo", "hello"]}}},
    ),
    "ChildGroupRequest": _one("A group for what it submits", {"seq": 1, "name": "parts"}),
    "BarrierRequest": _one("Ready to start, and reachable directly", {"phase": "ready", "lan": "192.168.7.20:41234"}),
    "MessageRequest": _one("A value, encoded as results are", {"seq": 1, "value": '{"loss":0.25}'}),
    "HardwareReport": _one(
        "A node with one GPU that can be measured",
        {
            "id": "8c1d9e0f2a3b4c5d6e7f8091",
            "cpu": 980,
            "memory_mb_s": 9100,
            "disk_mb_s": 420,
            "net_mb_s": 55,
            "rtt_us": 18000,
            "gflops": [148000],
            "signature": "A" * 86,
        },
    ),
    "LogsRequest": _one(
        "A line of a running attempt",
        {"chunks": [{"attempt_id": f"{_JOB}-1", "stream": "stdout", "text": "epoch 1 of 3\n"}]},
    ),
    "EnrolCodeRequest": _one("For one machine", {}, for_the_hosts_of_a_mesh={"hosts": 10, "lifetime_s": 3600}),
    "ReviewRequest": _one("Broken memory", {"note": "its memory was faulty and has been replaced"}),
    "NodeStateRequest": _one("Take no new work", {"state": "paused"}, finish_and_leave={"state": "draining"}),
    "AccountRequest": _one(
        "A person who submits jobs and lends machines", {"name": "ada", "roles": ["submitter", "provider"]}
    ),
    "QuotaRequest": _one(
        "At most 100 unfinished jobs, 250 credits a day, and 10 GB of files that are kept for a week",
        {
            "jobs_open_max": 100,
            "spend_per_day_max": 250_000_000,
            "artifact_bytes_max": 10_000_000_000,
            "artifact_keep_s": 604800,
        },
    ),
    "KeepRequest": _one("For a year", {"duration_s": 31536000}, until_it_is_released={}),
    "KeyRequest": _one(
        "A key for a month",
        {"name": "laptop", "expires_in_s": 2592000},
        that_may_only_submit={"name": "ci", "scopes": ["submit"], "expires_in_s": 2592000},
    ),
    "RekeyRequest": _one(
        "A new key, signed by the old one",
        {"public_key": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "proof": "A" * 86, "endorsement": "A" * 86},
    ),
    "RolesRequest": _one("An administrator who also submits jobs", {"roles": ["admin", "submitter"]}),
    "RefusalRequest": _one("With a reason", {"reason": "This payment was never received."}),
    "KeyRotateRequest": _one("The old one works for another day", {"overlap_s": 86400}),
    "SignInRequest": _one(
        "The code of a sign-in link, for a key", {"code": "9d1f0c3a5b7e42868a1d3c5f7e9b0a24", "name": "laptop"}
    ),
    "SecretRequest": _one("A password", {"value": "correct horse battery staple"}),
    "AttemptSecretsRequest": _one("To a key of this request", {"seal_to": "A" * 43 + "=", "signature": "A" * 86}),
    "ScheduleRequest": _one(
        "Every night",
        {
            "name": "nightly",
            "cron": "0 3 * * *",
            "tz": "Europe/Berlin",
            "request": {"spec": {"kind": "command", "name": "disk use", "argv": ["du", "-sh", "."]}},
        },
    ),
    "WebhookRequest": _one("When groups are complete or delivered", {"url": "https://example.org/computepool"}),
    "PayoutRequest": _one(
        "500 credits to a UPI id",
        {"amount": 500_000_000, "upi": "asha@okaxis"},
        to_a_bank_account={
            "amount": 12_345_670_000,
            "bank": {"account_number": "50100123456789", "ifsc": "HDFC0000123", "name": "Asha Rao"},
        },
    ),
    "RejectRequest": _one("Return it to its owner", {"reason": "The account holder is a different person."}),
    "PaidRequest": _one("With the bank's transfer number", {"reference": "HDFCN52026111500000001"}),
    "FailedRequest": _one("The bank returned it", {"reason": "The account is closed."}),
    "TopUpRequest": _one(
        "500 credits, paid in by bank transfer",
        {"account": "admin", "amount": 500_000_000, "source": "bank", "note": "UTR 4312 of 12 May"},
        a_gift={"account": "admin", "amount": 25_000_000, "note": "for the bug report"},
    ),
    "QuoteRequest": _one(
        "Ten jobs on a GPU with 16 GB, two hours each at most",
        {"needs": {"gpus": 1, "vram_mb": 16384}, "timeout_s": 7200, "items": 10, "name": "train.py"},
        within_a_budget={"needs": {"cores": 4}, "items": 100, "max_price": 40_000_000, "budget": 250_000_000},
    ),
    "PricesRequest": _one(
        "Cheaper in India; everything else as in version 1",
        {
            "based_on": 1,
            "base": 10_000_000,
            "tiers": {"cpu": 80, "gpu": 100, "rtx-3060": 200, "rtx-4090": 300},
            "regions": {"in": 65, "eu": 95, "us": 100, "uk": 100},
            "fee_ppm": 200_000,
            "spot_range": 4,
            "payout_min": 500_000_000,
        },
    ),
    "NodeRules": _one(
        "No network, no jobs labelled 'render', an hour at most",
        {"network": False, "deny_labels": ["render"], "minutes_max": 60, "disk_mb_max": 10_000},
    ),
    "FloorRequest": _one("At least 6.50 credits for a unit-hour, after the fee", {"floor": 6_500_000}),
}

#: By the name of the reply's schema.
REPLIES: dict[str, Example] = {
    "SubmitReply": {"job_ids": [_JOB], "group_id": None},
    "JobView": {
        "id": _JOB,
        "name": "train.py",
        "kind": "script",
        "state": "running",
        "reason": "started",
        "status": "running on attic-pc",
        "account_id": _ACCOUNT,
        "priority": 0,
        "retries": 2,
        "node_id": _NODE,
        "node_name": "attic-pc",
        "created_at_ms": _AT_MS,
        "queued_at_ms": _AT_MS,
        "started_at_ms": _AT_MS + 12,
        "progress": 0.25,
        "attempts": 1,
        "can_cancel": True,
    },
    "JobResult": {
        "seq": 41,
        "job_id": _JOB,
        "state": "succeeded",
        "reason": "completed",
        "exit_code": 0,
        "outputs": [{"name": "model.bin", "digest": _DIGEST, "size": 4}],
    },
    "WhyView": {
        "job_id": _JOB,
        "state": "queued",
        "reason": "waiting_for_node",
        "sentence": "No node has a GPU with 48 GB.",
        "nodes": 3,
        "eligible_now": 0,
        "unsatisfiable": True,
        "ahead": 0,
        "gates": [{"gate": "vram", "need": "49152 MB", "failing": 3, "failing_even_if_idle": 3, "passing_without": 1}],
        "changes": [{"change": "--vram 24", "nodes": 1}],
    },
    "GroupView": {
        "id": _GROUP,
        "name": "sweep 7",
        "kind": "map",
        "account_id": _ACCOUNT,
        "created_at_ms": _AT_MS,
        "counts": {"queued": 90, "running": 4, "succeeded": 6},
        "total": 100,
        "succeeded": 6,
        "pending": 94,
    },
    "RegisterReply": {
        "node_id": _NODE,
        "owner": _ACCOUNT,
        "hub_keys": {"5f2c9a01": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
    },
    "NextReply": {
        "interval_ms": 10000,
        "lease_ms": 60000,
        "fence_ms": 10000,
        "hub_time_ms": _AT_MS,
        "cancel": [f"{_JOB}-1"],
    },
    "CompleteReply": {"answers": [{"attempt_id": f"{_JOB}-1", "verdict": "accepted"}]},
    "EnrolCodeReply": {
        "code": "9d1f0c3a5b7e42868a1d3c5f7e9b0a24",
        "expires_at_ms": _AT_MS + 900_000,
        "command": "pool node start --hub http://127.0.0.1:8000 --code 9d1f0c3a5b7e42868a1d3c5f7e9b0a24",
    },
    "UploadState": {"digest": _DIGEST, "offset": 1_048_576, "complete": False},
    "StorageView": {
        "bytes": 3_221_225_472,
        "artifacts": 41,
        "bytes_max": 1_099_511_627_776,
        "keep_s": 7776000,
        "uploading_bytes": 0,
    },
    "ArtifactInfo": {
        "digest": _DIGEST,
        "size": 1024,
        "created_at_ms": _AT_MS,
        "whole": True,
        "kept_until_ms": _AT_MS + 7_776_000_000,
        "refs": [
            {
                "role": "output",
                "name": "model.bin",
                "account_id": _ACCOUNT,
                "job_id": _JOB,
                "job_state": "succeeded",
                "created_at_ms": _AT_MS,
                "kept_until_ms": _AT_MS + 7_776_000_000,
            }
        ],
    },
    "PayoutView": {
        "id": _PAYOUT,
        "account_id": _ACCOUNT,
        "account_name": "asha",
        "amount": 500_000_000,
        "method": "upi",
        "masked": "as***@okaxis",
        "upi": "asha@okaxis",
        "provider": "manual",
        "state": "requested",
        "reason": "first_payout",
        "status": "waits for an administrator: it is the first payout of this account",
        "created_at_ms": _AT_MS,
        "updated_at_ms": _AT_MS,
        "can_cancel": True,
    },
    "EventView": {
        "seq": 41,
        "at_ms": _AT_MS,
        "actor": "hub",
        "action": "job.leased",
        "job_id": _JOB,
        "attempt_id": f"{_JOB}-1",
        "node_id": _NODE,
        "account_id": _ACCOUNT,
        "before": "queued",
        "after": "leased",
        "reason": "placed",
    },
    "Problem": {
        "type": "about:blank",
        "title": "Bad request",
        "status": 422,
        "code": "bad_request",
        "detail": "spec.needs.colour: Extra inputs are not permitted",
        "field": "spec.needs.colour",
    },
}
