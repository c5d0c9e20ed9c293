"use client";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { Dialog } from "@/components/ui/dialog";
import { Empty, QueryView, SkeletonRows } from "@/components/ui/states";
import { Money } from "@/components/ui/values";
import { $api } from "@/lib/api/client";
import { PAGED, useRows } from "@/lib/paging";
import { PayoutForm } from "./payout-form";
import { PayoutStates } from "./payout-states";
import { PayoutTable } from "./payout-table";

export function MyPayouts() {
  const [asking, setAsking] = useState(false);
  const query = $api.useInfiniteQuery("get", "/payouts", { params: { query: {} } }, PAGED);
  const { rows, more } = useRows(query, (page) => page.payouts);
  const first = query.data?.pages[0];
  return (
    <div className="grid items-start gap-5 xl:grid-cols-[minmax(0,1fr)_22rem]">
      <Card
        flush
        title="Payouts"
        note={
          first && (
            <>
              <Money micro={first.available} unit /> can be paid out now; the least is <Money micro={first.minimum} unit />.
            </>
          )
        }
        aside={
          <Button look="primary" small disabled={!first} onClick={() => setAsking(true)}>
            Request a payout
          </Button>
        }
      >
        <QueryView query={query} skeleton={<SkeletonRows rows={4} />}>
          {() => (
            <PayoutTable
              payouts={rows}
              more={more}
              empty={
                <Empty title="No payouts yet">
                  <p>
                    What your machines earn can be paid out to a UPI id or a bank account once it has matured. Credits that were
                    given to you or bought can be spent, not paid out.
                  </p>
                </Empty>
              }
            />
          )}
        </QueryView>
      </Card>
      <PayoutStates />
      <Dialog open={asking} onClose={() => setAsking(false)} title="Request a payout">
        {first && <PayoutForm available={first.available} minimum={first.minimum} done={() => setAsking(false)} />}
      </Dialog>
    </div>
  );
}
