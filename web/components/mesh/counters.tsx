"use client";
import { Stat, Stats } from "@/components/ui/card";
import { Skeleton } from "@/components/ui/states";
import { Money } from "@/components/ui/values";
import type { Schemas } from "@/lib/api/client";
import { count, megabytes, pluralize, units } from "@/lib/format";

/** The pool in six numbers; the same six boxes while they are not known yet. */
export function Counters({ mesh }: { mesh: Schemas["MeshView"] | undefined }) {
  if (!mesh) {
    return (
      <Stats>
        {["Nodes", "Cores", "VRAM", "Running", "Queued", "Credits an hour"].map((name) => (
          <Stat key={name} name={name} hint={<Skeleton className="mt-1 h-3.5 w-20" />}>
            <Skeleton className="my-1 h-5 w-14" />
          </Stat>
        ))}
      </Stats>
    );
  }
  return (
    <Stats>
      <Stat name="Nodes" hint={`online, of ${count(mesh.nodes)}`}>
        {count(mesh.nodes_online)}
      </Stat>
      <Stat name="Cores" hint={`${cores(mesh.cores_busy)} busy`}>
        {cores(mesh.cores)}
      </Stat>
      <Stat name="VRAM" hint={`${pluralize(mesh.gpus, "GPU")}, ${count(mesh.gpus_busy)} busy`}>
        {megabytes(mesh.vram_mb)}
      </Stat>
      <Stat name="Running" hint={mesh.running === 1 ? "job" : "jobs"}>
        {count(mesh.running)}
      </Stat>
      <Stat name="Queued" hint={mesh.queued === 1 ? "job" : "jobs"}>
        {count(mesh.queued)}
      </Stat>
      <Stat name="Credits an hour" hint={pluralize(mesh.jobs_hour, "settled job")}>
        <Money micro={mesh.settled_hour} />
      </Stat>
    </Stats>
  );
}

function cores(value: number): string {
  return units(Math.round(value * 1000));
}
