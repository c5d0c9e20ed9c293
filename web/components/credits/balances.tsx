"use client";
import { Stat } from "@/components/ui/card";
import { QueryView, Skeleton } from "@/components/ui/states";
import { Ago, Money } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { duration } from "@/lib/format";

const ECONOMIES: Record<string, string> = {
  market: "One credit is one rupee.",
  "time-bank": "One credit is an hour of one core or GPU.",
  none: "Everything is free at this hub.",
};

export function Balances({ accountId }: { accountId?: string | undefined }) {
  const query = $api.useQuery("get", "/credits", { params: { query: { account_id: accountId } } });
  return (
    <QueryView query={query} skeleton={<BalancesSkeleton />}>
      {(credits) => <BalanceStats credits={credits} />}
    </QueryView>
  );
}

function BalanceStats({ credits }: { credits: Schemas["CreditsView"] }) {
  return (
    <section aria-label="Balances" className="grid gap-2">
      <div className="grid grid-cols-2 gap-3 lg:grid-cols-4">
        <Stat name="Available" hint="granted, paid in or earned">
          <Money micro={credits.available} exact />
        </Stat>
        <Stat name="Withdrawable" hint="matured earnings">
          <Money micro={credits.withdrawable} exact />
        </Stat>
        <Stat name="On hold" hint="for unfinished jobs">
          <Money micro={credits.held} exact />
        </Stat>
        <Stat
          name="Maturing"
          hint={
            credits.matures_at_ms ? (
              <>
                <Money micro={credits.matures_next ?? 0} exact /> <Ago ms={credits.matures_at_ms} />
              </>
            ) : (
              `earnings wait ${duration(credits.holdback_ms)}`
            )
          }
        >
          <Money micro={credits.maturing} exact />
        </Stat>
      </div>
      {credits.unconfirmed ? (
        <p className="text-muted text-sm">
          <Money micro={credits.unconfirmed} exact /> of the maturing credits wait until another owner's node confirms the
          results.
        </p>
      ) : null}
      <p className="text-muted text-sm">{ECONOMIES[credits.economy] ?? ""}</p>
    </section>
  );
}

/** As high as the balances, so that nothing moves when they arrive. */
function BalancesSkeleton() {
  return (
    <div role="status" aria-label="Loading the balances" className="grid gap-2">
      <div className="grid grid-cols-2 gap-3 lg:grid-cols-4">
        {["a", "b", "c", "d"].map((key) => (
          <div key={key} className="panel grid h-[5.9rem] content-center gap-2 px-4">
            <Skeleton className="h-4 w-20" />
            <Skeleton className="h-6 w-28" />
          </div>
        ))}
      </div>
      <Skeleton className="h-5 w-52" />
    </div>
  );
}
