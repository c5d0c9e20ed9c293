"""The status of the node on this machine, in words: `pool node status`, and the answer to pause, resume and drain."""

from __future__ import annotations

from typing import Any

from computepool.cli import output
from computepool.core.isolation import Level
from computepool.core.words import counted, short_account

_NOTES = {
    "paused": "takes no new jobs, even after a restart",
    "draining": "takes no new jobs, and stops when the last one finishes",
}


def fields_of(status: dict[str, Any]) -> list[tuple[str, output.Cell]]:
    """The agent's answer, a thing per line; what is as it should be and tells nothing is left out."""
    running = [
        f"{job['name'] or job['job_id']} ({output.span(job['ran_s'] * 1000)})" for job in status["running"]
    ]
    unreported = status["unreported"]
    return [
        ("node", f"{status['name']} ({status['node_id']})"),
        ("owner", status.get("owner_name") or short_account(status["owner"])),
        ("state", ": ".join(filter(None, (status["state"], _NOTES.get(status["state"]))))),
        ("now", _activity(status, running)),
        ("hub", _hub(status)),
        ("sandbox", f"{status['level']}: {Level.parse(status['level']).meaning}"),
        ("network", "for jobs that list hosts to reach" if status["network"] else "none for jobs"),
        ("CPUs offered", _cpus(status)),
        ("not yet reported", counted(unreported, "result") if unreported else None),
        (
            "results being delivered",
            counted(status["result_deliveries"], "group") if status["result_deliveries"] else None,
        ),
        ("hardware", status["hardware"]),
        ("clock", _clock(status["clock_offset_ms"])),
        ("running for", f"{output.span(status['uptime_s'] * 1000)} (process {status['pid']})"),
    ]


def _activity(status: dict[str, Any], running: list[str]) -> str:
    if not running:
        return str(status["why_idle"] or "No jobs are running.")
    waiting = f"; {counted(status['waiting'], 'job')} waiting" if status["waiting"] else ""
    return f"running {', '.join(running)}{waiting}"


def _hub(status: dict[str, Any]) -> str:
    silent = status["last_contact_s"]
    contact = "has not answered yet" if silent is None else f"answered {output.span(silent * 1000)} ago"
    lost = "" if status["connected"] or silent is None else ", too long ago: running jobs were stopped"
    error = f" ({status['last_error']})" if status["last_error"] else ""
    return f"{status['hub']} {contact}{lost}{error}"


def _cpus(status: dict[str, Any]) -> str:
    free = output.ranges(status["cpus_free"])
    return f"{output.ranges(status['cpus']) or 'none'} (free: {free or 'none'})"


def _clock(offset_ms: int) -> str | None:
    """A second either way harms nothing."""
    if abs(offset_ms) < 1_000:
        return None
    return f"{output.span(abs(offset_ms))} {'behind' if offset_ms > 0 else 'ahead of'} the hub's"
