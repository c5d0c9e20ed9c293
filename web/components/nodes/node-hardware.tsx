"use client";
import { Badge } from "@/components/ui/badge";
import { Card, Fact, Facts } from "@/components/ui/card";
import { Table } from "@/components/ui/table";
import { Ago, Moment } from "@/components/ui/values";
import type { Schemas } from "@/lib/api/client";
import { count, megabytes } from "@/lib/format";
import { coreText, gpuText, type NodeView } from "./node-cells";

type Scores = Schemas["ScoresView"];

const ROWS: { name: string; what: string; of: (scores: Scores) => string | null }[] = [
  { name: "Core", what: "a server core is 1,000", of: (scores) => measurement(scores.cpu) },
  { name: "Memory", what: "copied", of: (scores) => measurement(scores.memory_mb_s, "MB/s") },
  { name: "Disk", what: "written and read back", of: (scores) => measurement(scores.disk_mb_s, "MB/s") },
  { name: "Network", what: "from the hub", of: (scores) => measurement(scores.net_mb_s, "MB/s") },
  {
    name: "Round trip",
    what: "to the hub",
    of: (scores) => (scores.rtt_us == null ? null : `${(scores.rtt_us / 1000).toFixed(1)} ms`),
  },
  { name: "GPUs", what: "half-precision products", of: gpus },
];

function measurement(value: number | null | undefined, unit = ""): string | null {
  return value == null ? null : `${count(value)} ${unit}`.trim();
}

function gpus(scores: Scores): string | null {
  const measured = scores.gflops?.filter((one) => one != null) ?? [];
  return measured.length ? measured.map((one) => `${count(Math.round(one / 1000))} TFLOPS`).join(", ") : null;
}

export function NodeHardware({ node }: { node: NodeView }) {
  const found = node.hardware;
  const { profile } = node;
  return (
    <Card title="Hardware" note={[coreText(node), gpuText(node)].filter(Boolean).join(" · ")}>
      <div className="grid gap-4">
        {found && <p>{found.sentence}</p>}
        <Facts columns={3}>
          <Fact name="Claims">{found?.claimed ?? "–"}</Fact>
          <Fact name="Counts as">
            <span className="inline-flex flex-wrap items-center gap-2">
              {node.tier}
              {found && <Badge tone={found.standing === "lowered" ? "warn" : "neutral"}>{found.standing}</Badge>}
            </span>
          </Fact>
          <Fact name="Cores count as">{found?.cpu_tier ?? "–"}</Fact>
          <Fact name="Disk offered">{megabytes(profile.disk_mb)}</Fact>
          {profile.driver && (
            <Fact name="GPU driver">
              {profile.driver} <span className="text-muted">· CUDA {profile.cuda || "unknown"}</span>
            </Fact>
          )}
          {found && found.compared_jobs > 0 && (
            <Fact name="Run times">
              {found.slowdown == null ? "compared" : `${found.slowdown.toFixed(2)} × the others' median`} in{" "}
              {count(found.compared_jobs)} jobs
            </Fact>
          )}
          <Fact name="Measured">{found?.measured_at_ms ? <Ago ms={found.measured_at_ms} /> : "not yet"}</Fact>
        </Facts>
        {profile.gpus && profile.gpus.length > 0 && (
          <ul className="grid gap-1">
            {profile.gpus.map((gpu, at) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: GPUs of one kind differ only by position
              <li key={at} className="flex flex-wrap gap-x-2">
                {gpu.name}
                <span className="text-muted">
                  {gpu.tier} · {megabytes(gpu.vram_mb)}
                  {gpu.compute_capability && ` · compute capability ${gpu.compute_capability}`}
                </span>
              </li>
            ))}
          </ul>
        )}
        {found?.measured_at_ms != null && <Measured found={found} />}
        {found?.notes && found.notes.length > 0 && (
          <ul className="text-muted text-sm">
            {found.notes.map((note) => (
              <li key={note}>{note}</li>
            ))}
          </ul>
        )}
      </div>
    </Card>
  );
}

function Measured({ found }: { found: Schemas["HardwareView"] }) {
  const rows = ROWS.map((row) => ({ ...row, now: row.of(found.scores) })).filter((row) => row.now !== null);
  const history = found.history ?? [];
  return (
    <>
      <Table
        rows={rows}
        rowKey={(row) => row.name}
        columns={[
          {
            cell: (row) => (
              <>
                {row.name} <span className="text-muted text-sm">{row.what}</span>
              </>
            ),
          },
          { right: true, cell: (row) => row.now },
        ]}
      />
      {history.length > 0 && (
        <details>
          <summary className="mb-2 text-muted">Earlier measurements ({history.length})</summary>
          <Table
            label="Earlier measurements"
            className="w-max min-w-full whitespace-nowrap text-sm"
            rows={history}
            rowKey={(one) => one.at_ms}
            columns={[
              { title: "When", cell: (one) => <Moment ms={one.at_ms} /> },
              ...rows.map((row) => ({
                title: row.name,
                right: true,
                cell: (one: (typeof history)[number]) => row.of(one.scores) ?? "–",
              })),
            ]}
          />
        </details>
      )}
    </>
  );
}
