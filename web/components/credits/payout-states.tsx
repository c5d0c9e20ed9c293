import { StateBadge } from "@/components/ui/badge";
import { Card } from "@/components/ui/card";
import type { Schemas } from "@/lib/api/client";

type State = Schemas["PayoutView"]["state"];

const MEANINGS: [State, string][] = [
  ["requested", "Waits for an administrator: a first payout, or a large one."],
  ["reserved", "Goes to the bank with the next round. Until then it can be cancelled."],
  ["submitted", "The bank has it, or is about to get it."],
  ["unknown", "The bank's answer was lost; the hub asks until it is clear."],
  ["paid", "The money has arrived."],
  ["failed", "The bank said no; the credits are back."],
  ["rejected", "Refused or cancelled; the credits are back."],
];

export function PayoutStates() {
  return (
    <Card title="What the states mean">
      <dl className="grid gap-3 text-sm">
        {MEANINGS.map(([state, meaning]) => (
          <div key={state} className="grid grid-cols-[7rem_minmax(0,1fr)] items-start gap-3">
            <dt>
              <StateBadge state={state} />
            </dt>
            <dd className="text-muted">{meaning}</dd>
          </div>
        ))}
      </dl>
    </Card>
  );
}
