import { StateBadge } from "@/components/ui/badge";
import { Card } from "@/components/ui/card";
import type { Schemas } from "@/lib/api/client";

type State = Schemas["PayoutView"]["state"];

const MEANINGS: [State, string][] = [
  ["requested", "Waits for an administrator: the first payout, or a large one."],
  ["reserved", "Goes to the bank in the next round. It can still be cancelled."],
  ["submitted", "The bank has the order, or is about to receive it."],
  ["unknown", "The bank's answer was lost. The hub keeps asking."],
  ["paid", "The money has arrived."],
  ["failed", "The bank refused it. The credits were returned."],
  ["rejected", "Rejected or cancelled. The credits were returned."],
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
