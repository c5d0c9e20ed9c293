"use client";
// A new version of the prices. If somebody else applied one in the meantime, the changes can be made to theirs instead.
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { TextField } from "@/components/ui/field";
import { Notice } from "@/components/ui/states";
import { useToast } from "@/components/ui/toast";
import { $api } from "@/lib/api/client";
import { asProblem } from "@/lib/api/problem";
import { AccountName } from "./account-name";
import { PriceChanges } from "./price-changes";
import { asText, type Changes, differences, errorIn, type PriceTable, request, withChanges } from "./price-table";
import { RateFields } from "./rate-fields";

interface PriceEditProps {
  basis: PriceTable; // what the changes are made to
  newest: PriceTable;
  rebase: () => void;
  done: () => void;
}

const NUMBERS = [
  { name: "base", label: "Base price per unit-hour", unit: "cr" },
  { name: "fee", label: "Fee", unit: "%" },
  { name: "range", label: "Range of the spot price", unit: "×" },
  { name: "least", label: "Minimum payout", unit: "cr" },
];

export function PriceEdit({ basis, newest, rebase, done }: PriceEditProps) {
  const [changes, setChanges] = useState<Changes>({});
  const queries = useQueryClient();
  const toast = useToast();
  const save = $api.useMutation("put", "/prices", {
    onSuccess: (table) => {
      toast.success(`Version ${table.version} of the prices is in effect.`);
      done();
    },
    // Somebody else may have applied a version, which is needed to continue.
    onError: () => void queries.invalidateQueries({ queryKey: ["get", "/prices"] }),
  });
  const set = (name: string, text: string | null) => setChanges((before) => ({ ...before, [name]: text }));
  const now = withChanges(basis, changes);
  const changed = differences(asText(basis), now);
  const body = request(basis, changes);
  return (
    <Card title="New prices" note={`Based on version ${basis.version}. Running jobs keep the price they were leased at.`}>
      <div className="grid gap-6">
        <div className="grid gap-4 sm:grid-cols-2">
          {NUMBERS.map(({ name, label, unit }) => (
            <TextField
              key={name}
              label={label}
              unit={unit}
              inputMode="decimal"
              value={changes[name] ?? now[name] ?? ""}
              onChange={(event) => set(name, event.target.value)}
              error={errorIn(basis, name, changes[name] ?? now[name] ?? "")}
            />
          ))}
        </div>
        <RateFields title="Tiers" kind="tier" basis={basis} changes={changes} set={set} />
        <RateFields title="Regions" kind="region" basis={basis} changes={changes} set={set} />
        <section className="grid gap-2 border-line border-t pt-4">
          <h3>Changes</h3>
          <PriceChanges changes={changed} />
        </section>
        {save.error && <Notice tone="bad">{asProblem(save.error).detail}</Notice>}
        <div className="flex justify-end gap-2">
          <Button onClick={done}>Cancel</Button>
          <Button
            look="primary"
            disabled={!body || changed.length === 0}
            pending={save.isPending}
            onClick={() => body && save.mutate({ body })}
          >
            Apply the prices
          </Button>
        </div>
        {/* At the end, so that its appearance moves nothing that somebody is about to press. */}
        {newest.version > basis.version && (
          <Notice tone="warn">
            <p>
              <AccountName id={newest.created_by || "Somebody"} /> has applied version {newest.version} in the meantime. Your
              changes are based on version {basis.version} and would be refused.
            </p>
            <Button
              small
              className="mt-2"
              onClick={() => {
                save.reset();
                rebase();
              }}
            >
              Apply my changes to version {newest.version}
            </Button>
          </Notice>
        )}
      </div>
    </Card>
  );
}
