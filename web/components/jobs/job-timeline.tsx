"use client";
import { Badge, StateBadge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { Link } from "@/components/ui/link";
import { QueryView } from "@/components/ui/states";
import { $api, type Schemas } from "@/lib/api/client";
import { eventLabel } from "@/lib/event-labels";
import { duration, moment, shortId } from "@/lib/format";
import { humanize } from "@/lib/labels";
import { nodeHref } from "@/lib/links";
import { useAccount } from "@/lib/session";
import { isOver, type JobDetail } from "./job-page";

type Event = Schemas["EventView"];

const PAGE = 200;

function useJobEvents(jobId: string) {
  return $api.useInfiniteQuery(
    "get",
    "/events",
    { params: { query: { job_id: jobId, limit: PAGE } } },
    {
      pageParamName: "after",
      initialPageParam: 0,
      getNextPageParam: (page) => (page.events.length === PAGE ? page.cursor : undefined),
      // New events come at the end.
      meta: { refetch: (_queries, query) => query.fetch() },
    },
  );
}

export function JobTimeline({ job }: { job: JobDetail }) {
  const query = useJobEvents(job.id);
  const nodes = Object.fromEntries((job.tries ?? []).map((attempt) => [attempt.node_id, attempt.node_name]));
  return (
    <Card>
      <QueryView query={query}>
        {({ pages }) => {
          const events = pages.flatMap((page) => page.events);
          const names = Object.assign({}, nodes, ...pages.map((page) => page.names ?? {})) as Record<string, string>;
          return (
            <>
              <ol className="grid grid-cols-1">
                {events.map((event, index) => (
                  <Step key={event.seq} event={event} before={events[index - 1]} names={names} />
                ))}
              </ol>
              {query.hasNextPage && (
                <Button small pending={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
                  Show more
                </Button>
              )}
              {!isOver(job) && <p className="mt-3 pl-7 text-muted text-sm">Updated live.</p>}
            </>
          );
        }}
      </QueryView>
    </Card>
  );
}

function Step({ event, before, names }: { event: Event; before: Event | undefined; names: Record<string, string> }) {
  return (
    <li className="relative grid grid-cols-[1.75rem_minmax(0,1fr)] pb-5 last:pb-1">
      <span aria-hidden="true" className="absolute top-4 bottom-0 left-[0.3125rem] w-0.5 bg-line [li:last-child>&]:hidden" />
      <span aria-hidden="true" className="mt-1.5 size-3 rounded-full border-2 border-accent bg-surface" />
      <div className="grid min-w-0 gap-0.5">
        <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
          {event.after ? <StateBadge state={event.after} /> : <Badge title={event.action}>{eventLabel(event.action)}</Badge>}
          {event.reason && <bdi className="break-words">{humanize(event.reason)}</bdi>}
          {event.node_id && (
            <Link href={nodeHref(event.node_id)} className="link">
              <bdi>{names[event.node_id] ?? shortId(event.node_id)}</bdi>
            </Link>
          )}
        </div>
        <div className="flex flex-wrap gap-x-3 text-muted text-sm">
          <time dateTime={new Date(event.at_ms).toISOString()} className="num">
            {moment(event.at_ms)}
          </time>
          {before && <span className="num">+{duration(event.at_ms - before.at_ms)}</span>}
          <span>
            by <Actor event={event} names={names} />
          </span>
          {event.after && event.action !== `job.${event.after}` && <span title={event.action}>{eventLabel(event.action)}</span>}
        </div>
        {event.data && <Data data={event.data} />}
      </div>
    </li>
  );
}

function Actor({ event, names }: { event: Event; names: Record<string, string> }) {
  const account = useAccount();
  if (event.actor === account.id) return "you";
  if (event.actor === "hub") return "the hub";
  if (event.actor === event.node_id) return "the node";
  return <bdi>{names[event.actor] ?? shortId(event.actor)}</bdi>;
}

const SHOWN_MAX = 12;
const CHARS_MAX = 200;

function Data({ data }: { data: Record<string, unknown> }) {
  const entries = Object.entries(data).slice(0, SHOWN_MAX);
  return (
    <dl className="flex flex-wrap gap-x-4 text-sm">
      {entries.map(([name, value]) => (
        <div key={name} className="flex min-w-0 gap-1.5">
          <dt className="text-muted">{humanize(name)}</dt>
          <dd className="min-w-0 break-all">
            <bdi>{(typeof value === "string" ? value : JSON.stringify(value)).slice(0, CHARS_MAX)}</bdi>
          </dd>
        </div>
      ))}
    </dl>
  );
}
