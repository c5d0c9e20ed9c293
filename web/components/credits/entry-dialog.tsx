"use client";
// A transfer, and how the cost of its job was calculated, as `pool credits why` explains it.
import { ButtonLink } from "@/components/ui/button";
import { Fact, Facts } from "@/components/ui/card";
import { Dialog } from "@/components/ui/dialog";
import { QueryView, SkeletonRows } from "@/components/ui/states";
import { Table } from "@/components/ui/table";
import { Id, Moment, Money } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { jobHref } from "@/lib/links";

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
        <Fact name="Change in available credits">
          <Money micro={entry.available_change} signed exact />
        </Fact>
        <Fact name="Change in total credits">
          <Money micro={entry.change} signed exact />
        </Fact>
        <Fact name="Ledger entry">{entry.seq}</Fact>
        {entry.ref && <Fact name="Reference">{entry.ref}</Fact>}
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
            <Table
              className="text-sm"
              rows={cost.lines ?? []}
              rowKey={(line) => line.label}
              columns={[
                { className: "text-muted", cell: (line) => line.label },
                { right: true, cell: (line) => line.text },
              ]}
            />
          </>
        )}
      </QueryView>
      <div>
        <ButtonLink href={jobHref(jobId)} small>
          Open the job
        </ButtonLink>
      </div>
    </section>
  );
}
