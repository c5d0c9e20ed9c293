"use client";
import { Badge } from "@/components/ui/badge";
import { Card, Fact, Facts } from "@/components/ui/card";
import { Ago, Moment } from "@/components/ui/values";
import type { Schemas } from "@/lib/api/client";
import { count, megabytes } from "@/lib/format";
import { cardWords, coreWords, type NodeView } from "./node-cells";

type Scores = Schemas["ScoresView"];

const ROWS: { name: string; what: string; of: (scores: Scores) => string | null }[] = [
  { name: "Core", what: "1,000 is a core of a server", of: (scores) => measurement(scores.cpu) },
  { name: "Memory", what: "copied", of: (scores) => measurement(scores.memory_mb_s, "MB/s") },
  { name: "Disk", what: "written and read back", of: (scores) => measurement(scores.disk_mb_s, "MB/s") },
  { name: "Network", what: "from the hub", of: (scores) => measurement(scores.net_mb_s, "MB/s") },
  {
    name: "Round trip",
    what: "to the hub",
    of: (scores) => (scores.rtt_us == null ? null : `${(scores.rtt_us / 1000).toFixed(1)} ms`),
  },
  { name: "GPUs", what: "half-precision products", of: cards },
];

function measurement(value: number | null | undefined, unit = ""): string | null {
  return value == null ? null : `${count(value)} ${unit}`.trim();
}

function cards(scores: Scores): string | null {
  const measured = scores.gflops?.filter((one) => one != null) ?? [];
  return measured.length ? measured.map((one) => `${count(Math.round(one / 1000))} TFLOPS`).join(", ") : null;
}

/** What it says it is, what was measured, and what it counts as. */
export function NodeHardware({ node }: { node: NodeView }) {
  const found = node.hardware;
  const { profile } = node;
  return (
    <Card title="Hardware" note={[coreWords(node), cardWords(node)].filter(Boolean).join(" · ")}>
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
              // biome-ignore lint/suspicious/noArrayIndexKey: cards of one kind are told apart by their place
              <li key={at} className="flex flex-wrap gap-x-2">
                {gpu.name}
                <span className="text-muted">
                  {gpu.tier} · {megabytes(gpu.vram_mb)}
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
      <table className="w-full text-left">
        <caption className="sr-only">Measured scores</caption>
        <tbody>
          {rows.map((row) => (
            <tr key={row.name} className="border-line border-t">
              <th scope="row" className="py-1.5 pr-3 font-normal">
                {row.name} <span className="text-muted text-sm">{row.what}</span>
              </th>
              <td className="num py-1.5 text-right">{row.now}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {history.length > 0 && (
        <details>
          <summary className="text-muted">Earlier measurements ({history.length})</summary>
          <div className="mt-2 overflow-x-auto" role="region" aria-label="Earlier measurements" tabIndex={0}>
            <table className="w-max min-w-full whitespace-nowrap text-left text-sm">
              <thead className="text-muted">
                <tr>
                  <th className="py-1 pr-3 font-normal">When</th>
                  {rows.map((row) => (
                    <th key={row.name} className="py-1 pl-3 text-right font-normal">
                      {row.name}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {history.map((one) => (
                  <tr key={one.at_ms} className="border-line border-t">
                    <td className="py-1 pr-3">
                      <Moment ms={one.at_ms} />
                    </td>
                    {rows.map((row) => (
                      <td key={row.name} className="num py-1 pl-3 text-right">
                        {row.of(one.scores) ?? "–"}
                      </td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </details>
      )}
    </>
  );
}
