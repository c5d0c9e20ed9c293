"use client";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { Dialog } from "@/components/ui/dialog";
import { Empty } from "@/components/ui/states";
import { Money } from "@/components/ui/values";
import { $api } from "@/lib/api/client";
import { PAGED } from "@/lib/paging";
import { PayoutForm } from "./payout-form";
import { PayoutStates } from "./payout-states";
import { PayoutTable } from "./payout-table";

export function MyPayouts() {
  const [asking, setAsking] = useState(false);
  const query = $api.useInfiniteQuery("get", "/payouts", { params: { query: {} } }, PAGED);
  const first = query.data?.pages[0];
  return (
    <div className="grid items-start gap-5 xl:grid-cols-[minmax(0,1fr)_22rem]">
      <Card
        flush
        title="Payouts"
        note={
          first && (
            <>
              Withdrawable now: <Money micro={first.available} unit />. Minimum: <Money micro={first.minimum} unit />.
            </>
          )
        }
        aside={
          <Button look="primary" small disabled={!first} onClick={() => setAsking(true)}>
            Request a payout
          </Button>
        }
      >
        <PayoutTable
          query={query}
          empty={
            <Empty title="No payouts yet">
              <p>
                Once matured, what your machines earn can be paid out to a UPI ID or a bank account. Credits that you were given
                or bought can be spent, but not paid out.
              </p>
            </Empty>
          }
        />
      </Card>
      <PayoutStates />
      <Dialog open={asking} onClose={() => setAsking(false)} title="Request a payout">
        {first && <PayoutForm available={first.available} minimum={first.minimum} done={() => setAsking(false)} />}
      </Dialog>
    </div>
  );
}
