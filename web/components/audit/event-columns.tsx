import { Badge, type Tone } from "@/components/ui/badge";
import type { Column } from "@/components/ui/data-table";
import { Ago } from "@/components/ui/values";
import { eventLabel } from "@/lib/event-labels";
import { credits, shortId } from "@/lib/format";
import { humanize } from "@/lib/labels";
import type { HubEvent } from "./event";

export type Names = Record<string, string>;

function nameOf(id: string, names: Names): string {
  return names[id] ?? shortId(id);
}

/** The one thing that an event is about first of all. */
function subject(event: HubEvent): string | null {
  return event.job_id ?? event.node_id ?? event.group_id ?? event.account_id ?? null;
}

const BAD = /\.(failed|lost|expired|revoked|rejected|contradicted|disabled|offline|banned)$/;
const GOOD = /\.(succeeded|paid|complete|online|home|given|matured|approved)$/;

function tone(action: string): Tone {
  if (BAD.test(action)) return "bad";
  return GOOD.test(action) ? "good" : "neutral";
}

export function change(event: HubEvent): string {
  const words = (code: string) => (/\.floor$/.test(event.action) && /^\d+$/.test(code) ? credits(Number(code)) : humanize(code));
  return [event.before, event.after]
    .filter((code) => code != null && code !== "")
    .map((code) => words(code as string))
    .join(" → ");
}

export function eventColumns(names: Names, open: (event: HubEvent) => void): Column<HubEvent>[] {
  return [
    {
      key: "action",
      title: "What",
      width: "minmax(8.75rem,14rem)",
      cell: (event) => (
        <button type="button" onClick={() => open(event)} className="max-w-full truncate hover:underline">
          <Badge tone={tone(event.action)} title={event.action}>
            {eventLabel(event.action)}
          </Badge>
        </button>
      ),
    },
    {
      key: "subject",
      title: "About",
      width: "minmax(5rem,2fr)",
      cell: (event) => {
        const id = subject(event);
        return id ? <span title={id}>{nameOf(id, names)}</span> : <span className="text-muted">the hub</span>;
      },
    },
    {
      key: "why",
      title: "Why",
      width: "minmax(8rem,3fr)",
      from: "md",
      cell: (event) => (
        <span title={event.reason ?? undefined}>
          {event.reason ? humanize(event.reason) : <span className="text-muted">–</span>}
        </span>
      ),
    },
    { key: "change", title: "From → to", width: "minmax(12.5rem,1fr)", from: "lg", cell: change },
    {
      key: "actor",
      title: "Who",
      width: "minmax(7rem,1fr)",
      from: "sm",
      cell: (event) => <span title={event.actor}>{nameOf(event.actor, names)}</span>,
    },
    { key: "when", title: "When", width: "7.5rem", right: true, cell: (event) => <Ago ms={event.at_ms} /> },
  ];
}
