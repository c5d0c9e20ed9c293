import { classes } from "@/components/ui/classes";
import { count } from "@/lib/format";
import { LOOKS } from "./cells";

/** How much of a group is in which state, as one bar. */
export function StateBar({ counts, total, label }: { counts: Record<string, number>; total: number; label: string }) {
  const words = LOOKS.filter((look) => counts[look.state]).map((look) => `${counts[look.state]} ${look.state}`);
  return (
    <div
      role="img"
      aria-label={`${label}: ${words.join(", ") || "empty"}`}
      className="flex h-2.5 w-full overflow-hidden rounded-full bg-line"
    >
      {total > 0 &&
        LOOKS.map((look) => {
          const share = (counts[look.state] ?? 0) / total;
          return share > 0 ? (
            <span key={look.state} className={look.swatch} style={{ width: `${share * 100}%`, minWidth: 2 }} />
          ) : null;
        })}
    </div>
  );
}

/** The colours with the number of items in each state. */
export function Legend({ counts }: { counts: Record<string, number> }) {
  return (
    <ul aria-label="Items by state" className="flex flex-wrap gap-x-4 gap-y-1 text-sm">
      {LOOKS.filter((look) => counts[look.state]).map((look) => (
        <li key={look.state} className="flex items-center gap-1.5">
          <span aria-hidden="true" className={classes("size-3 rounded-sm", look.swatch)} />
          <span className="num">{count(counts[look.state] ?? 0)}</span>
          <span className="text-muted">{look.state}</span>
        </li>
      ))}
    </ul>
  );
}
