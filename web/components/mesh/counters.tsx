"use client";
import { StatRow } from "@/components/ui/card";
import { Money } from "@/components/ui/values";
import type { Schemas } from "@/lib/api/client";
import { count, megabytes, pluralize, units } from "@/lib/format";

const cores = (value: number) => units(Math.round(value * 1000));

export function Counters({ mesh }: { mesh: Schemas["MeshView"] | undefined }) {
  return (
    <StatRow
      stats={[
        { name: "Nodes", value: mesh && count(mesh.nodes_online), hint: `online, of ${count(mesh?.nodes ?? 0)}` },
        { name: "Cores", value: mesh && cores(mesh.cores), hint: `${cores(mesh?.cores_busy ?? 0)} busy` },
        {
          name: "VRAM",
          value: mesh && megabytes(mesh.vram_mb),
          hint: `${pluralize(mesh?.gpus ?? 0, "GPU")}, ${count(mesh?.gpus_busy ?? 0)} busy`,
        },
        { name: "Running", value: mesh && count(mesh.running), hint: mesh?.running === 1 ? "job" : "jobs" },
        { name: "Queued", value: mesh && count(mesh.queued), hint: mesh?.queued === 1 ? "job" : "jobs" },
        {
          name: "Credits per hour",
          value: mesh && <Money micro={mesh.settled_hour} />,
          hint: pluralize(mesh?.jobs_hour ?? 0, "settled job"),
        },
      ]}
    />
  );
}
