"use client";
import type { ReactNode } from "react";
import { Button } from "@/components/ui/button";
import { Fact, Facts } from "@/components/ui/card";
import { Code } from "@/components/ui/copy";
import { Dialog } from "@/components/ui/dialog";
import { Link } from "@/components/ui/link";
import { Id, Moment } from "@/components/ui/values";
import { eventLabel } from "@/lib/event-labels";
import { capitalize, humanize } from "@/lib/labels";
import { setParams } from "@/lib/use-params";
import { change, type Names } from "./event-columns";
import type { HubEvent } from "./use-trail";

interface EventDialogProps {
  event: HubEvent | null;
  names: Names;
  onClose: () => void;
}

export function EventDialog({ event, names, onClose }: EventDialogProps) {
  return (
    <Dialog
      open={event !== null}
      onClose={onClose}
      title={event ? capitalize(eventLabel(event.action)) : ""}
      note={event?.reason && humanize(event.reason)}
      wide
    >
      {event && <Whole event={event} names={names} onClose={onClose} />}
    </Dialog>
  );
}

const ABOUT = [
  ["job", "job_id", "Job"],
  ["node", "node_id", "Node"],
  ["group", "group_id", "Group"],
  ["account", "account_id", "Account affected"],
] as const;
const PAGES = { job: "/jobs", node: "/nodes", group: "/groups" } as const;

function Whole({ event, names, onClose }: { event: HubEvent; names: Names; onClose: () => void }) {
  return (
    <div className="grid gap-5">
      <Facts columns={2}>
        <Fact name="When">
          <Moment ms={event.at_ms} />
        </Fact>
        <Fact name="Sequence number">{event.seq}</Fact>
        <Fact name="Event name">
          <code>{event.action}</code>
        </Fact>
        <About name="Actor" id={event.actor} param="actor" names={names} onClose={onClose} />
        {change(event) && <Fact name="From → to">{change(event)}</Fact>}
        {ABOUT.map(([param, field, words]) => {
          const id = event[field];
          return id && <About key={param} name={words} id={id} param={param} names={names} onClose={onClose} />;
        })}
        {event.attempt_id && (
          <Fact name="Attempt">
            <Id id={event.attempt_id} />
          </Fact>
        )}
      </Facts>
      {event.data && <Code label="Event data" text={JSON.stringify(event.data, null, 2)} wrap />}
      <details>
        <summary className="text-muted text-sm">Event as JSON</summary>
        <div className="mt-2">
          <Code label="Event as JSON" text={JSON.stringify(event, null, 2)} wrap />
        </div>
      </details>
    </div>
  );
}

interface AboutProps {
  name: string;
  id: string;
  param: string;
  names: Names;
  onClose: () => void;
}

function About({ name, id, param, names, onClose }: AboutProps): ReactNode {
  const page = param in PAGES ? PAGES[param as keyof typeof PAGES] : null;
  return (
    <Fact name={name}>
      <span className="flex flex-wrap items-center gap-x-2">
        {page ? (
          <Link href={{ pathname: page, query: { id } }} className="link">
            {names[id] ?? "Open"}
          </Link>
        ) : (
          <span>{names[id] ?? ""}</span>
        )}
        <Id id={id} />
        <Button
          small
          look="quiet"
          onClick={() => {
            setParams({ [param]: id });
            onClose();
          }}
        >
          Filter
        </Button>
      </span>
    </Fact>
  );
}
