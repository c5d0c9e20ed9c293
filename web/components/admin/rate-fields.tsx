"use client";
import { X } from "lucide-react";
import { useState } from "react";
import { Button, IconButton } from "@/components/ui/button";
import { classes } from "@/components/ui/classes";
import { TextField } from "@/components/ui/field";
import { asText, type Changes, numberOf, type PriceTable, withChanges } from "./price-table";

interface RateFieldsProps {
  title: string;
  kind: "tier" | "region";
  basis: PriceTable;
  changes: Changes;
  set: (name: string, text: string | null) => void;
}

/** Multipliers by name, to be changed, removed or added. */
export function RateFields({ title, kind, basis, changes, set }: RateFieldsProps) {
  const [sought, setSought] = useState("");
  const before = asText(basis);
  const names = Object.keys({ ...withChanges(basis, changes), ...changes })
    .filter((name) => name.startsWith(`${kind} `) && changes[name] !== null && name.includes(sought.trim()))
    .sort();
  return (
    <section className="grid gap-3">
      <h3>{title}</h3>
      <TextField
        label={`Find or add a ${kind}`}
        value={sought}
        spellCheck={false}
        autoComplete="off"
        onChange={(event) => setSought(event.target.value.toLowerCase())}
      />
      {names.length === 0 && sought.trim() && (
        <div>
          <Button small onClick={() => set(`${kind} ${sought.trim()}`, "1.00")}>
            Add {sought.trim()}
          </Button>
        </div>
      )}
      <ul className="grid max-h-80 gap-2 overflow-y-auto pr-1 sm:grid-cols-2 2xl:grid-cols-3">
        {names.map((name) => (
          <OneRate key={name} name={name} kind={kind} text={changes[name] ?? before[name] ?? ""} was={before[name]} set={set} />
        ))}
      </ul>
    </section>
  );
}

interface OneRateProps {
  name: string;
  kind: string;
  text: string;
  was: string | undefined;
  set: (name: string, text: string | null) => void;
}

function OneRate({ name, kind, text, was, set }: OneRateProps) {
  const short = name.slice(kind.length + 1);
  const wrong = numberOf(name, text) === null;
  const changed = !wrong && text.trim() !== was;
  return (
    <li className="flex items-center gap-2">
      <span className={classes("min-w-0 grow truncate text-sm", changed && "font-semibold")} title={short}>
        {short}
      </span>
      <input
        aria-label={`Rate of ${short}`}
        aria-invalid={wrong}
        inputMode="decimal"
        className={classes("control num max-w-24 shrink-0 text-right", wrong && "text-bad")}
        value={text}
        onChange={(event) => set(name, event.target.value)}
      />
      <IconButton label={`Remove ${short}`} onClick={() => set(name, null)}>
        <X />
      </IconButton>
    </li>
  );
}
