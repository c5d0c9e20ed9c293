"use client";
import { Card, Fact, Facts, Stat, Stats } from "@/components/ui/card";
import { Empty, Notice, QueryView } from "@/components/ui/states";
import { Ago, Moment, Money } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { count } from "@/lib/format";
import type { NodeView } from "./node-cells";
import { NodeEvidence } from "./node-evidence";

type Reputation = Schemas["ReputationView"];

/** How far the pool relies on it, what that follows from, and every outcome behind it. */
export function NodeReputation({ node }: { node: NodeView }) {
  const known = node.reputation;
  if (!known) return <Empty title="This node has no history yet." />;
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
          Banned since <Moment ms={known.banned_at_ms} /> for wrong results: it works for its owner alone until an administrator
          takes that back.
        </Notice>
      )}
      <Numbers known={known} />
      <div className="grid min-w-0 gap-5 xl:grid-cols-[minmax(0,3fr)_minmax(0,2fr)] xl:items-start">
        <NodeEvidence node={node} />
        <div className="grid min-w-0 gap-5">
          {node.can_manage && <InWords node={node} />}
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
      <Stat name="Score" hint="from 0 to 1">
        {known.score.toFixed(3)}
      </Stat>
      <Stat name="Jobs done" hint={`still count ${known.success_weight.toFixed(1)}`}>
        {count(known.successes)}
      </Stat>
      <Stat name="Its own failures" hint={`still count ${known.failure_weight.toFixed(1)}`}>
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

function InWords({ node }: { node: NodeView }) {
  const query = $api.useQuery("get", "/nodes/{node_id}/why", { params: { path: { node_id: node.id } } });
  return (
    <Card title="In words">
      <QueryView query={query}>{(why) => <p>{why.reputation}</p>}</QueryView>
    </Card>
  );
}

function Standing({ known }: { known: Reputation }) {
  return (
    <Card title="Standing">
      <Facts>
        <Fact name="Newcomer">
          {known.newcomer ? `${known.newcomer_jobs_done} of ${known.newcomer_jobs} verified jobs of others` : "no"}
        </Fact>
        <Fact name="Days with good work">{count(known.tenure_days)}</Fact>
        <Fact name="Days with verified work">{count(known.verified_days)}</Fact>
        <Fact name="May hold jobs worth">
          {known.exposure_cap == null ? "any amount" : <Money micro={known.exposure_cap} unit />}
        </Fact>
        <Fact name="Last outcome">{known.changed_at_ms == null ? "none yet" : <Ago ms={known.changed_at_ms} />}</Fact>
      </Facts>
    </Card>
  );
}

const WORDS: [string, string][] = [
  [
    "Score",
    "The pool's careful guess of how likely this node brings the next job home. Little known means a lower guess; jobs go to the higher ones first.",
  ],
  [
    "Weight",
    "A result that agreed with another node's counts 1, one that nobody compared a quarter, a failure of the node itself 1. What is older counts less: successes lose half in 30 days, failures in 60.",
  ],
  [
    "Failures",
    "Only the node's own: its sandbox, its agent, a lost connection. A job that fails by itself says nothing about the node.",
  ],
  ["Newcomer", "A newcomer gets one job of others at a time, so that beginning anew under another name gains nothing."],
  ["Worth", "What the jobs of others on all of the owner's nodes may cost together; it grows with each day of verified work."],
  [
    "Violations",
    "Results that nodes of other owners proved wrong. Three in 30 days, in jobs of at least two people, ban the node.",
  ],
  ["Streak", "The longer it is, the more rarely its results are checked."],
];

function HowItWorks() {
  return (
    <Card title="What the terms mean">
      <dl className="grid gap-3">
        {WORDS.map(([word, meaning]) => (
          <div key={word}>
            <dt className="font-medium">{word}</dt>
            <dd className="text-muted text-sm">{meaning}</dd>
          </div>
        ))}
      </dl>
    </Card>
  );
}
