"use client";
import { Card } from "@/components/ui/card";
import { Empty, QueryView, Skeleton } from "@/components/ui/states";
import { TimeChart } from "@/components/ui/time-chart";
import { $api, type Schemas } from "@/lib/api/client";
import { count, megabytes, pluralize, units } from "@/lib/format";
import { isOver, type JobDetail } from "./job-page";

type Usage = Schemas["JobUsage"];
type AttemptUsage = Schemas["AttemptUsage"];

export function JobUsage({ job }: { job: JobDetail }) {
  const query = $api.useQuery(
    "get",
    "/jobs/{job_id}/usage",
    { params: { path: { job_id: job.id } } },
    { refetchInterval: ({ state }) => (isOver(job) ? false : Math.max(2000, state.data?.every_ms ?? 0)) },
  );
  return (
    <QueryView query={query} skeleton={<Skeleton className="h-72" />}>
      {(usage) => {
        const shown = usage.attempts.filter((attempt) => attempt.at_ms.length > 1).reverse();
        if (shown.length === 0) return <NoMeasurements job={job} />;
        return (
          <div className="grid grid-cols-1 gap-4">
            {shown.map((attempt) => (
              <One key={attempt.attempt_id} usage={usage} attempt={attempt} />
            ))}
          </div>
        );
      }}
    </QueryView>
  );
}

function NoMeasurements({ job }: { job: JobDetail }) {
  return (
    <Card>
      <Empty title={isOver(job) ? "No measurements" : "No measurements yet"}>
        Nodes report usage every few seconds while a job runs. The Attempts tab has the totals.
      </Empty>
    </Card>
  );
}

function One({ usage, attempt }: { usage: Usage; attempt: AttemptUsage }) {
  const name = `attempt ${attempt.number}`;
  const times = attempt.at_ms;
  const flat = (value: number) => times.map(() => value);
  const gpus = attempt.gpu_percent;
  const vram = attempt.vram_mb;
  return (
    <Card
      title={`Attempt ${attempt.number}`}
      note={
        <>
          on <bdi>{attempt.node_name ?? attempt.node_id}</bdi>
          {attempt.now &&
            `, now ${units(attempt.now.cpu_percent * 10)} CPUs, ${megabytes(attempt.now.rss_mb)}, ${pluralize(attempt.now.processes, "process", "processes")}`}
        </>
      }
    >
      <div className="grid gap-6 xl:grid-cols-2">
        <TimeChart
          label={`CPU of ${name}`}
          times={times}
          format={(percent) => `${units(percent * 10)} CPUs`}
          least={0}
          series={[
            { label: "CPU", points: attempt.cpu_percent, filled: true },
            { label: "reserved", points: flat(usage.cores * 100), dashed: true, colour: 5 },
          ]}
        />
        <TimeChart
          label={`Memory of ${name}`}
          times={times}
          format={megabytes}
          least={0}
          series={[
            { label: "memory", points: attempt.rss_mb, filled: true, colour: 2 },
            { label: "limit", points: flat(usage.ram_mb), dashed: true, colour: 5 },
          ]}
        />
        {gpus && (
          <TimeChart
            label={`GPUs of ${name}`}
            times={times}
            format={(value) => `${count(value)} %`}
            least={0}
            most={100}
            series={[{ label: usage.gpus > 1 ? `${usage.gpus} GPUs, on average` : "GPU", points: gpus, filled: true, colour: 3 }]}
          />
        )}
        {vram && (
          <TimeChart
            label={`GPU memory of ${name}`}
            times={times}
            format={megabytes}
            least={0}
            series={[
              { label: "GPU memory", points: vram, filled: true, colour: 4 },
              ...(usage.vram_mb > 0
                ? [{ label: "reserved", points: flat(usage.vram_mb * Math.max(1, usage.gpus)), dashed: true, colour: 5 as const }]
                : []),
            ]}
          />
        )}
      </div>
    </Card>
  );
}
