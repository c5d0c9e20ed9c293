"use client";
import { Download } from "lucide-react";
import { PayoutTable } from "@/components/credits/payout-table";
import { Card } from "@/components/ui/card";
import { Segments } from "@/components/ui/segments";
import { Empty, QueryView, SkeletonRows } from "@/components/ui/states";
import { $api, hubUrl, type Schemas } from "@/lib/api/client";
import { PAGED, useRows } from "@/lib/paging";
import { useParam } from "@/lib/use-params";

type State = Schemas["PayoutView"]["state"];

const STATES: State[] = ["requested", "reserved", "submitted", "unknown", "paid", "failed", "rejected"];
const OPTIONS = [
  { value: "requested", label: "To approve" },
  { value: "submitted", label: "At the bank" },
  { value: "unknown", label: "Unclear" },
  { value: "paid", label: "Paid" },
  { value: "all", label: "All" },
];

export function AllPayouts() {
  const [chosen, choose] = useParam("state");
  const picked = OPTIONS.some((option) => option.value === chosen) ? chosen : "requested";
  const state = STATES.find((one) => one === picked);
  const query = $api.useInfiniteQuery("get", "/payouts", { params: { query: { all: true, state } } }, PAGED);
  const { rows, more } = useRows(query, (page) => page.payouts);
  return (
    <Card
      flush
      title="Payouts of all accounts"
      note="Open one to approve or reject it, or to record the bank's answer."
      aside={
        <a
          href={hubUrl(["payouts", "export.csv"])}
          download
          className="inline-flex min-h-8 items-center gap-2 rounded-control border border-line-strong/60 px-2.5 font-medium text-ink text-sm no-underline hover:bg-hover"
        >
          <Download size={15} aria-hidden="true" /> Bank file
        </a>
      }
    >
      <div className="overflow-x-auto border-line border-b px-5 pb-3">
        <Segments label="State" value={picked} onChange={choose} options={OPTIONS} />
      </div>
      <QueryView query={query} skeleton={<SkeletonRows rows={4} />}>
        {() => (
          <PayoutTable
            owners
            payouts={rows}
            more={more}
            empty={
              <Empty title={picked === "requested" ? "No payout to approve" : "No such payouts"}>
                <p>First and large payouts wait here until an administrator approves them.</p>
              </Empty>
            }
          />
        )}
      </QueryView>
    </Card>
  );
}
