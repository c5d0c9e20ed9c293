"use client";
import { StateBadge } from "@/components/ui/badge";
import { Card } from "@/components/ui/card";
import { Notice, QueryView, SkeletonRows } from "@/components/ui/states";
import { TableHead } from "@/components/ui/table-head";
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

/** What stands between backticks is to be typed. */
function WithCode({ text }: { text: string }) {
  // biome-ignore lint/suspicious/noArrayIndexKey: they never change places
  return text.split("`").map((part, at) => (at % 2 === 1 ? <code key={at}>{part}</code> : part));
}

function Loops({ loops }: { loops: HealthView["loops"] }) {
  return (
    <Card title="Background tasks" note="What the hub does periodically">
      <div className="overflow-x-auto">
        <table className="w-full">
          <TableHead words={["Task", "State"]} numbers={["Every", "Last run"]} />
          <tbody>
            {loops.map((loop) => (
              <tr key={loop.name} className="border-line border-t">
                <th scope="row" className="py-2 pr-3 text-left font-normal">
                  {humanize(loop.name)}
                  {loop.error && <p className="break-words text-bad text-sm">{loop.error}</p>}
                </th>
                <td className="pr-3">
                  <StateBadge state={loop.state} />
                </td>
                <td className="num whitespace-nowrap pl-3 text-right">{duration(loop.interval_ms)}</td>
                <td className="text-right">
                  <Ago ms={loop.ran_at_ms} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function Hub({ health }: { health: HealthView }) {
  return (
    <Card title="This hub">
      <dl className="grid gap-3">
        <div>
          <dt className="text-muted text-sm">Version</dt>
          <dd>{health.version}</dd>
        </div>
        <div>
          <dt className="text-muted text-sm">Started</dt>
          <dd>
            <Moment ms={health.started_at_ms} /> (<Ago ms={health.started_at_ms} />)
          </dd>
        </div>
        <div>
          <dt className="text-muted text-sm">ID</dt>
          <dd className="break-all font-mono text-sm">{health.hub_id}</dd>
        </div>
        <div>
          <dt className="text-muted text-sm">Node versions</dt>
          <dd>
            {health.node_versions.length === 0
              ? "none"
              : health.node_versions.map((one) => `${one.version} × ${count(one.nodes)}`).join(", ")}
          </dd>
        </div>
      </dl>
    </Card>
  );
}
