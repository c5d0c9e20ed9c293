"use client";
import { Card, Fact, Facts, Stat, Stats } from "@/components/ui/card";
import { Empty, Notice, QueryView } from "@/components/ui/states";
import { Ago, Moment, Money } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { count, percent } from "@/lib/format";
import type { NodeView } from "./node-cells";
import { NodeEvidence } from "./node-evidence";

type Reputation = Schemas["ReputationView"];

export function NodeReputation({ node }: { node: NodeView }) {
  const known = node.reputation;
  if (!known) return <Empty title="This node has no history yet" />;
  return (
    <div className="grid gap-5">
      {known.probation_at_ms != null && (
        <p>
          On probation since <Moment ms={known.probation_at_ms} /> for wrong results: all its results are checked, and it is
          tested with jobs whose results are known.
        </p>
      )}
      {known.banned_at_ms != null && (
        <Notice tone="bad">
          Banned since <Moment ms={known.banned_at_ms} /> for wrong results: it runs only its owner's jobs until an administrator
          lifts the ban.
        </Notice>
      )}
      <Numbers known={known} />
      <div className="grid min-w-0 gap-5 xl:grid-cols-[minmax(0,3fr)_minmax(0,2fr)] xl:items-start">
        <NodeEvidence node={node} />
        <div className="grid min-w-0 gap-5">
          {node.can_manage && <Summary node={node} />}
          <Standing known={known} />
          <HowItWorks />
        </div>
      </div>
    </div>
  );
}

function Numbers({ known }: { known: Reputation }) {
  return (
    <Stats>
      <Stat name="Score" hint="likely to complete a job">
        {percent(known.score, 1)}
      </Stat>
      <Stat name="Completed jobs" hint={`current weight ${known.success_weight.toFixed(1)}`}>
        {count(known.successes)}
      </Stat>
      <Stat name="Failures of the node" hint={`current weight ${known.failure_weight.toFixed(1)}`}>
        {count(known.failures)}
      </Stat>
      <Stat name="Verified" hint="compared with other nodes">
        {count(known.verified)}
      </Stat>
      <Stat name="Streak" hint="verified in a row">
        {count(known.streak)}
      </Stat>
      <Stat name="Violations" hint={`${count(known.recent_violations)} in the last 30 days`}>
        {count(known.violation_count)}
      </Stat>
    </Stats>
  );
}

function Summary({ node }: { node: NodeView }) {
  const query = $api.useQuery("get", "/nodes/{node_id}/why", { params: { path: { node_id: node.id } } });
  return (
    <Card title="Summary">
      <QueryView query={query}>{(why) => <p>{why.reputation}</p>}</QueryView>
    </Card>
  );
}

function Standing({ known }: { known: Reputation }) {
  return (
    <Card title="Standing">
      <Facts>
        <Fact name="Newcomer">
          {known.newcomer ? `${known.newcomer_jobs_done} of ${known.newcomer_jobs} verified jobs of other people` : "no"}
        </Fact>
        <Fact name="Days with completed jobs">{count(known.tenure_days)}</Fact>
        <Fact name="Days with verified jobs">{count(known.verified_days)}</Fact>
        <Fact name="Limit on the value of jobs">
          {known.exposure_cap == null ? "no limit" : <Money micro={known.exposure_cap} unit />}
        </Fact>
        <Fact name="Last outcome">{known.changed_at_ms == null ? "none yet" : <Ago ms={known.changed_at_ms} />}</Fact>
      </Facts>
    </Card>
  );
}

const TERMS: [string, string][] = [
  [
    "Score",
    "A cautious estimate of the probability that this node completes its next job. Little evidence lowers it. Jobs go to higher scores first.",
  ],
  [
    "Weight",
    "A result that agrees with another node's counts 1, an unchecked one a quarter, and a failure of the node 1. Successes lose half their weight in 30 days, failures in 60.",
  ],
  [
    "Failures",
    "Failures of the node itself: its sandbox, its agent, a lost connection. A job that fails by itself does not count.",
  ],
  ["Newcomer", "A newcomer gets one of other people's jobs at a time, so that starting over under another name gains nothing."],
  [
    "Limit on the value of jobs",
    "What other people's jobs on all of the owner's nodes may cost together. It grows with each day of verified work.",
  ],
  [
    "Violations",
    "Results that nodes of other owners proved wrong. Three within 30 days, in jobs of at least two people, put the node on probation.",
  ],
  ["Streak", "A longer streak means fewer checks of its results."],
];

function HowItWorks() {
  return (
    <Card title="What the terms mean">
      <dl className="grid gap-3">
        {TERMS.map(([word, meaning]) => (
          <div key={word}>
            <dt className="font-medium">{word}</dt>
            <dd className="text-muted text-sm">{meaning}</dd>
          </div>
        ))}
      </dl>
    </Card>
  );
}
