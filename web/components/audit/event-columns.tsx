import { Badge, type Tone } from "@/components/ui/badge";
import type { Column } from "@/components/ui/data-table";
import { Ago } from "@/components/ui/values";
import { eventLabel } from "@/lib/event-labels";
import { credits, shortId } from "@/lib/format";
import { humanize } from "@/lib/labels";
import type { HubEvent } from "./use-trail";

export type Names = Record<string, string>;

function nameOf(id: string, names: Names): string {
  return names[id] ?? shortId(id);
}

const BAD = /\.(failed|lost|expired|revoked|rejected|contradicted|disabled|offline|banned)$/;
const GOOD = /\.(succeeded|paid|complete|online|home|given|matured|approved)$/;

function tone(action: string): Tone {
  if (BAD.test(action)) return "bad";
  return GOOD.test(action) ? "good" : "neutral";
}

export function change(event: HubEvent): string {
  const isAmount = event.action.endsWith(".floor");
  const words = (code: string) => (isAmount && /^\d+$/.test(code) ? credits(Number(code)) : humanize(code));
  return [event.before, event.after].flatMap((code) => (code ? [words(code)] : [])).join(" → ");
}

export function eventColumns(names: Names, open: (event: HubEvent) => void): Column<HubEvent>[] {
  return [
    {
      key: "action",
      title: "Event",
      width: "9.5rem",
      grow: 2,
      cell: (event) => (
        <button type="button" onClick={() => open(event)} className="max-w-full truncate hover:underline">
          <Badge tone={tone(event.action)} title={event.action}>
            <span className="truncate">{eventLabel(event.action)}</span>
          </Badge>
        </button>
      ),
    },
    {
      key: "subject",
      title: "About",
      width: "5rem",
      grow: 2,
      cell: (event) => {
        const id = event.job_id ?? event.node_id ?? event.group_id ?? event.account_id;
        return id ? <span title={id}>{nameOf(id, names)}</span> : <span className="text-muted">the hub</span>;
      },
    },
    {
      key: "why",
      title: "Reason",
      width: "8rem",
      grow: 3,
      from: "md",
      cell: (event) => (
        <span title={event.reason ?? undefined}>
          {event.reason ? humanize(event.reason) : <span className="text-muted">–</span>}
        </span>
      ),
    },
    { key: "change", title: "From → to", width: "12.5rem", grow: 1, from: "lg", cell: change },
    {
      key: "actor",
      title: "Actor",
      width: "7rem",
      grow: 1,
      from: "sm",
      cell: (event) => <span title={event.actor}>{nameOf(event.actor, names)}</span>,
    },
    { key: "when", title: "When", width: "7.5rem", right: true, cell: (event) => <Ago ms={event.at_ms} /> },
  ];
}
