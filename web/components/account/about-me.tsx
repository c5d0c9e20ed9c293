"use client";
import { Badge } from "@/components/ui/badge";
import { Card, Fact, Facts } from "@/components/ui/card";
import { Progress } from "@/components/ui/progress";
import { QueryView, Skeleton, SkeletonRows } from "@/components/ui/states";
import { Id, Moment, Money } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { bytes, count, duration, percent } from "@/lib/format";
import { useAccount } from "@/lib/session";

const ROLES: Record<string, string> = {
  admin: "runs this hub: accounts, prices, payouts",
  submitter: "submits jobs",
  provider: "lends machines",
};

export function AboutMe() {
  // The session's data first, so that nothing moves when the answer arrives.
  const query = $api.useQuery("get", "/me", undefined, { placeholderData: useAccount() });
  return (
    <div className="grid items-start gap-5 lg:grid-cols-2">
      <Card title="Profile">
        <QueryView query={query} skeleton={<SkeletonRows rows={3} />}>
          {(me) => <Who account={me} />}
        </QueryView>
      </Card>
      <Card title="Submitter reputation" note="How your jobs behave on other people's machines; owners can require a minimum.">
        <QueryView query={query} skeleton={<SkeletonRows rows={3} />}>
          {(me) => <SubmitterReputation known={me.submitter_reputation} />}
        </QueryView>
      </Card>
      <Card title="Storage" note="Files at the hub: inputs, outputs, results">
        <Storage />
      </Card>
      <Card title="Limits" note="Administrators can change the hub's defaults for this account.">
        <QueryView query={query} skeleton={<SkeletonRows rows={3} />}>
          {(me) => <Limits account={me} />}
        </QueryView>
      </Card>
    </div>
  );
}

function Who({ account }: { account: Schemas["AccountView"] }) {
  return (
    <Facts>
      <Fact name="Name">{account.name}</Fact>
      <Fact name="ID">
        <Id id={account.id} />
      </Fact>
      <Fact name="Roles">
        <ul className="grid gap-1.5">
          {account.roles.map((role) => (
            <li key={role} className="flex flex-wrap items-center gap-2">
              <Badge tone="accent">{role}</Badge> <span className="text-muted text-sm">{ROLES[role]}</span>
            </li>
          ))}
        </ul>
      </Fact>
      <Fact name="Created">
        <Moment ms={account.created_at_ms} />
      </Fact>
    </Facts>
  );
}

function SubmitterReputation({ known }: { known: Schemas["SubmitterReputationView"] | null | undefined }) {
  if (!known) return <p className="text-muted">No history yet.</p>;
  return (
    <div className="grid gap-4">
      <div className="grid gap-1.5">
        <p>
          <span className="num font-semibold text-2xl">{percent(known.score)}</span>{" "}
          {known.changed_at_ms === null && <span className="text-muted">the initial score</span>}
        </p>
        <Progress value={known.score} label="Submitter reputation" />
      </div>
      <Facts>
        <Fact name="Completed and paid">{count(known.completed)}</Fact>
        <Fact name="Failed">{count(known.failed)}</Fact>
        <Fact name="Stopped by a limit">{count(known.harmful)}</Fact>
        <Fact name="Cancelled while running">{count(known.cancelled)}</Fact>
      </Facts>
    </div>
  );
}

function Storage() {
  const query = $api.useQuery("get", "/storage");
  return (
    <QueryView query={query} skeleton={<Skeleton className="h-36" />}>
      {(storage) => (
        <div className="grid gap-4">
          <div className="grid gap-1.5">
            <p>
              <span className="num font-semibold text-2xl">{bytes(storage.bytes)}</span>{" "}
              <span className="text-muted">of {bytes(storage.bytes_max)}</span>
            </p>
            <Progress value={storage.bytes_max > 0 ? storage.bytes / storage.bytes_max : 1} label="Storage used" />
          </div>
          <Facts>
            <Fact name="Files">{count(storage.artifacts)}</Fact>
            <Fact name="Kept after a job ends">{duration(storage.keep_s * 1000)}</Fact>
            {(storage.uploading_bytes ?? 0) > 0 && <Fact name="Uploading">{bytes(storage.uploading_bytes ?? 0)}</Fact>}
          </Facts>
        </div>
      )}
    </QueryView>
  );
}

function Limits({ account }: { account: Schemas["AccountView"] }) {
  const usual = <span className="text-muted">hub default</span>;
  const own = (value: number | null | undefined, show: (value: number) => React.ReactNode) =>
    value == null ? usual : show(value);
  return (
    <Facts>
      <Fact name="Unfinished jobs">{own(account.jobs_open_max, count)}</Fact>
      <Fact name="Spending per day">
        {own(account.spend_per_day_max, (micro) => (
          <Money micro={micro} unit />
        ))}
      </Fact>
      <Fact name="Files at the hub">{own(account.artifact_bytes_max, bytes)}</Fact>
      <Fact name="Kept for">{own(account.artifact_keep_s, (s) => duration(s * 1000))}</Fact>
    </Facts>
  );
}
