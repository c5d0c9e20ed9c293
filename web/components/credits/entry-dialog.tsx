"use client";
// Transfer, and where the job's price behind it comes from: the same words as `pool credits why`.
import { ButtonLink } from "@/components/ui/button";
import { Fact, Facts } from "@/components/ui/card";
import { Dialog } from "@/components/ui/dialog";
import { QueryView, SkeletonRows } from "@/components/ui/states";
import { Id, Moment, Money } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";

type Entry = Schemas["Entry"];

export function EntryDialog({ entry, onClose }: { entry: Entry | null; onClose: () => void }) {
  return (
    <Dialog open={entry !== null} onClose={onClose} title="Transfer" note={entry?.text} wide>
      {entry && <Whole entry={entry} />}
    </Dialog>
  );
}

function Whole({ entry }: { entry: Entry }) {
  return (
    <div className="grid gap-5">
      <Facts columns={3}>
        <Fact name="Amount">
          <Money micro={entry.amount} unit exact />
        </Fact>
        <Fact name="From → to">
          {entry.source} → {entry.target}
        </Fact>
        <Fact name="When">
          <Moment ms={entry.at_ms} />
        </Fact>
        <Fact name="Change in credits to spend">
          <Money micro={entry.available_change} signed exact />
        </Fact>
        <Fact name="Change in total credits">
          <Money micro={entry.change} signed exact />
        </Fact>
        <Fact name="Ledger number">{entry.seq}</Fact>
        {entry.ref && <Fact name="Belongs to">{entry.ref}</Fact>}
        <Fact name="Transaction">
          <Id id={entry.tx_key} />
        </Fact>
      </Facts>
      {entry.job_id && <Why jobId={entry.job_id} />}
    </div>
  );
}

function Why({ jobId }: { jobId: string }) {
  const query = $api.useQuery("get", "/jobs/{job_id}/cost", { params: { path: { job_id: jobId } } });
  return (
    <section className="grid gap-3 border-line border-t pt-4">
      <h3>How the cost was calculated</h3>
      <QueryView query={query} skeleton={<SkeletonRows rows={3} />}>
        {(cost) => (
          <>
            <p>{cost.sentence}</p>
            {(cost.lines ?? []).length > 0 && (
              <dl className="grid gap-px overflow-hidden rounded-control border border-line text-sm">
                {(cost.lines ?? []).map((line) => (
                  <div key={line.label} className="flex flex-wrap justify-between gap-x-4 bg-sunken px-3 py-2">
                    <dt className="text-muted">{line.label}</dt>
                    <dd className="num text-right">{line.text}</dd>
                  </div>
                ))}
              </dl>
            )}
          </>
        )}
      </QueryView>
      <div>
        <ButtonLink href={{ pathname: "/jobs", query: { id: jobId } }} small>
          Open the job
        </ButtonLink>
      </div>
    </section>
  );
}
