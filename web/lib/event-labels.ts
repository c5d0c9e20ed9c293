// Labels of events whose names do not read well without the dot.
const EVENTS: Record<string, string> = {
  "account.floor": "default floor changed",
  "account.link_issued": "sign-in link created",
  "account.quotas": "quotas changed",
  "account.roles": "roles changed",
  "account.signed_in": "signed in",
  "approval.requested": "approval requested",
  "attempt.narrow": "attempt without a choice of nodes",
  "checkpoint.saved": "checkpoint saved",
  "group.home": "results delivered",
  "group.delivery_problem": "results not delivered",
  "group.registered": "keys registered",
  "hub.checked": "invariants checked",
  "hub.key_retired": "hub key retired",
  "hub.key_rotated": "hub key rotated",
  "node.active": "node resumed",
  "node.code_ended": "enrolment code revoked",
  "node.code_issued": "enrolment code created",
  "node.draining": "node draining",
  "node.floor": "floor changed",
  "node.probation": "node on probation",
  "node.rekeyed": "node has a new key",
  "node.rules": "rules changed",
  "node.penalised": "result proven wrong",
  "payout.approved_once": "payout approved by the first of two",
};

/** "job.failed" → "job failed". */
export function eventLabel(action: string): string {
  return EVENTS[action] ?? action.replace(/[._]/g, " ");
}
