"use client";
import { ListChecks } from "lucide-react";
import { Badge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { Progress } from "@/components/ui/progress";
import { Empty, Notice, QueryView, SkeletonRows } from "@/components/ui/states";
import { Ago } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { asProblem } from "@/lib/api/problem";
import { count, duration } from "@/lib/format";
import { AccountName } from "./account-name";

type Check = Schemas["CheckView"];
type Rule = Schemas["RuleView"];

const RUNNING_MS = 500;

export function Checks() {
  const query = $api.useQuery("get", "/hub/check", undefined, {
    refetchInterval: ({ state }) => (state.data?.state === "running" ? RUNNING_MS : false),
  });
  const run = $api.useMutation("post", "/hub/check");
  const running = run.isPending || query.data?.state === "running";
  return (
    <Card
      title="Invariants"
      note="Rules that the database must always obey, checked in one snapshot. On the command line: pool hub check."
      aside={
        <Button look="primary" small pending={running} onClick={() => run.mutate({})}>
          Check now
        </Button>
      }
    >
      {run.error && <Notice tone="bad">{asProblem(run.error).detail}</Notice>}
      <QueryView query={query} skeleton={<SkeletonRows rows={6} />}>
        {(check) => <Outcome check={check} />}
      </QueryView>
    </Card>
  );
}

function Outcome({ check }: { check: Check }) {
  const rules = check.rules ?? [];
  if (check.state === "never") {
    return (
      <Empty icon={ListChecks} title={check.sentence}>
        <p>The hub keeps running during the check. With many jobs it takes a few seconds.</p>
      </Empty>
    );
  }
  const bad = check.state === "failed" || (check.broken ?? 0) > 0;
  return (
    <div className="grid gap-4">
      <Notice tone={check.state === "running" ? "info" : bad ? "bad" : "good"}>{check.sentence}</Notice>
      {check.state === "running" && rules.length > 0 && (
        <Progress value={(check.done ?? 0) / rules.length} label="Rules checked" />
      )}
      <p className="text-muted text-sm">
        {check.requested_by && (
          <>
            Requested by <AccountName id={check.requested_by} />,{" "}
          </>
        )}
        <Ago ms={check.started_at_ms} />
        {check.started_at_ms && check.finished_at_ms ? `, took ${duration(check.finished_at_ms - check.started_at_ms)}` : ""}
      </p>
      <ul className="grid gap-px overflow-hidden rounded-control border border-line bg-line">
        {rules.map((rule) => (
          <OneRule key={`${rule.kind} ${rule.rule}`} rule={rule} />
        ))}
      </ul>
    </div>
  );
}

const VERDICTS = { holds: "good", broken: "bad", waiting: "neutral" } as const;

function OneRule({ rule }: { rule: Rule }) {
  const examples = rule.examples ?? [];
  return (
    <li className="grid gap-1 bg-surface px-3 py-2">
      <div className="flex items-start justify-between gap-3">
        <span className="min-w-0 break-words">{rule.rule}</span>
        <Badge tone={VERDICTS[rule.state]}>{rule.state}</Badge>
      </div>
      {rule.state === "broken" && (
        <p className="break-words text-bad text-sm">
          {count(rule.broken ?? 0)} rows{examples.length > 0 && `, such as ${examples.join(", ")}`}
        </p>
      )}
    </li>
  );
}
