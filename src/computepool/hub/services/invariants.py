"""The rules that must hold at every moment, whatever crashed: checked by the fault tests and by `pool hub check`."""

from __future__ import annotations

from computepool.hub.store import consistency
from computepool.hub.store.consistency import Finder
from computepool.hub.store.session import Connection

#: How many examples a sentence names.
_EXAMPLES = 5

RULES: dict[str, Finder] = {
    "a job has at most one accepted attempt": consistency.accepted_twice,
    "an accepted attempt was reported as succeeded": consistency.accepted_without_success,
    "a job has succeeded exactly when an attempt was accepted": consistency.success_not_accepted,
    "a finished job has no live attempt": consistency.finished_but_live,
    "a queued job has no live attempt": consistency.queued_but_live,
    "a leased or running job has one live attempt, its newest": consistency.held_without_one_attempt,
    "a job's attempt number is that of its newest attempt": consistency.numbers_out_of_step,
    "an attempt is named after its job and number": consistency.misnamed_attempts,
    "an attempt has a time of ending exactly when it is over": consistency.ended_without_time,
    "a job has a time of ending exactly when it is finished": consistency.finished_without_time,
    "a job counts the unfinished jobs it waits for": consistency.wrong_dependency_count,
    "no queued job waits for one that failed": consistency.waits_for_the_dead,
    "a job's events follow each other without a gap": consistency.broken_histories,
    "a job's last event says its state": consistency.last_event_differs,
    "a finished job has one final event, an unfinished one none": consistency.not_one_final_event,
    "a job's group exists and has the job's owner": consistency.lost_groups,
    "everything that is referred to exists": consistency.lost_references,
}


def check_all(connection: Connection) -> list[str]:
    """One sentence for every rule that is broken, with examples. Give it one transaction, so that it sees one moment."""
    return [sentence for rule, find in RULES.items() if (sentence := _sentence(rule, find(connection)))]


def _sentence(rule: str, broken: list[str]) -> str:
    if not broken:
        return ""
    more = f" and {len(broken) - _EXAMPLES} more" if len(broken) > _EXAMPLES else ""
    return f"Broken: {rule}: {', '.join(broken[:_EXAMPLES])}{more}."
