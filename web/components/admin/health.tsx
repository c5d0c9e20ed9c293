"use client";
import { StateBadge } from "@/components/ui/badge";
import { Card, Fact, Facts } from "@/components/ui/card";
import { Notice, QueryView, SkeletonRows } from "@/components/ui/states";
import { Table } from "@/components/ui/table";
import { Ago, Moment } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { count, duration } from "@/lib/format";
import { humanize } from "@/lib/labels";

type HealthView = Schemas["HealthView"];

const TONES = { ok: "good", note: "info", warn: "warn", fail: "bad" } as const;

export function Health() {
  const query = $api.useQuery("get", "/hub/health", undefined, { refetchInterval: 15_000 });
  return (
    <QueryView query={query} skeleton={<Waiting />}>
      {(health) => (
        <div className="grid gap-5">
          <Notice tone={TONES[health.state]}>{health.sentence}</Notice>
          <Parts parts={health.parts} />
          <div className="grid items-start gap-5 xl:grid-cols-[minmax(0,2fr)_minmax(0,1fr)]">
            <Loops loops={health.loops} />
            <Hub health={health} />
          </div>
        </div>
      )}
    </QueryView>
  );
}

function Waiting() {
  return (
    <div className="panel min-h-[60rem]">
      <SkeletonRows rows={16} />
    </div>
  );
}

function Parts({ parts }: { parts: HealthView["parts"] }) {
  return (
    <ul className="grid gap-3 md:grid-cols-2 2xl:grid-cols-3">
      {parts.map((part) => (
        <li key={part.name} className="panel grid content-start gap-1.5 p-4">
          <div className="flex items-center justify-between gap-3">
            <h2 className="text-base">{part.title}</h2>
            <StateBadge state={part.state} />
          </div>
          <p className="break-words text-muted">{part.sentence}</p>
          {part.todo && (
            <p className="break-words">
              <WithCode text={part.todo} />
            </p>
          )}
        </li>
      ))}
    </ul>
  );
}

/** Commands are in backticks. */
function WithCode({ text }: { text: string }) {
  // biome-ignore lint/suspicious/noArrayIndexKey: the parts stay in their places
  return text.split("`").map((part, at) => (at % 2 === 1 ? <code key={at}>{part}</code> : part));
}

function Loops({ loops }: { loops: HealthView["loops"] }) {
  return (
    <Card title="Background tasks" note="Work that the hub repeats at intervals">
      <Table
        label="Background tasks"
        rows={loops}
        rowKey={(loop) => loop.name}
        columns={[
          {
            title: "Task",
            cell: (loop) => (
              <>
                {humanize(loop.name)}
                {loop.error && <p className="break-words text-bad text-sm">{loop.error}</p>}
              </>
            ),
          },
          { title: "State", cell: (loop) => <StateBadge state={loop.state} /> },
          { title: "Every", right: true, className: "whitespace-nowrap", cell: (loop) => duration(loop.interval_ms) },
          { title: "Last run", right: true, cell: (loop) => <Ago ms={loop.ran_at_ms} /> },
        ]}
      />
    </Card>
  );
}

function Hub({ health }: { health: HealthView }) {
  const versions = health.node_versions.map((one) => `${one.version} × ${count(one.nodes)}`);
  return (
    <Card title="This hub">
      <Facts columns={1}>
        <Fact name="Version">{health.version}</Fact>
        <Fact name="Started">
          <Moment ms={health.started_at_ms} /> (<Ago ms={health.started_at_ms} />)
        </Fact>
        <Fact name="ID">
          <span className="break-all font-mono text-sm">{health.hub_id}</span>
        </Fact>
        <Fact name="Node versions">{versions.join(", ") || "none"}</Fact>
      </Facts>
    </Card>
  );
}
