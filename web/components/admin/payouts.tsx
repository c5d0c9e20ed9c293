"use client";
import { PayoutTable } from "@/components/credits/payout-table";
import { DownloadLink } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { Segments } from "@/components/ui/segments";
import { Empty } from "@/components/ui/states";
import { $api, hubUrl, type Schemas } from "@/lib/api/client";
import { PAGED } from "@/lib/paging";
import { useParam } from "@/lib/use-params";

const OPTIONS = [
  { value: "requested", label: "To approve" },
  { value: "submitted", label: "At the bank" },
  { value: "unknown", label: "Unknown" },
  { value: "paid", label: "Paid" },
  { value: "all", label: "All" },
];

export function AllPayouts() {
  const [chosen, choose] = useParam("state");
  const picked = OPTIONS.find((option) => option.value === chosen)?.value ?? "requested";
  const state = picked === "all" ? undefined : (picked as Schemas["PayoutView"]["state"]);
  const query = $api.useInfiniteQuery("get", "/payouts", { params: { query: { all: true, state } } }, PAGED);
  return (
    <Card
      flush
      title="Payouts of all accounts"
      note="Open one to approve or reject it, or to record the bank's answer."
      aside={
        <DownloadLink small href={hubUrl(["payouts", "export.csv"])}>
          Bank file
        </DownloadLink>
      }
    >
      <div className="overflow-x-auto border-line border-b px-5 pb-3">
        <Segments label="State" value={picked} onChange={choose} options={OPTIONS} />
      </div>
      <PayoutTable
        key={picked} // another list closes the dialog
        owners
        query={query}
        empty={
          <Empty title={picked === "requested" ? "No payout to approve" : "No such payouts"}>
            <p>First and large payouts wait here until an administrator approves them.</p>
          </Empty>
        }
      />
    </Card>
  );
}
