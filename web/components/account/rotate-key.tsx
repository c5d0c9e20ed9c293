"use client";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { SelectField } from "@/components/ui/field";
import { Notice } from "@/components/ui/states";
import { $api, type Schemas } from "@/lib/api/client";
import { asProblem } from "@/lib/api/problem";
import { useIdempotencyKey } from "@/lib/use-idempotency-key";
import { OneTimeSecret } from "./one-time-secret";

const OVERLAPS = [
  { value: "0", label: "At once" },
  { value: "3600", label: "In an hour" },
  { value: "86400", label: "In a day" },
  { value: "604800", label: "In a week" },
];

export function RotateKey({ replaced, done }: { replaced: Schemas["KeyView"]; done: () => void }) {
  const [overlap, setOverlap] = useState("86400");
  const queries = useQueryClient();
  const idempotency = useIdempotencyKey();
  const rotate = $api.useMutation("post", "/keys/{key_id}/rotate", {
    onSuccess: () => {
      idempotency.reset();
      void queries.invalidateQueries();
    },
  });
  if (rotate.data) return <OneTimeSecret secret={rotate.data.key} label="New key" done={done} />;
  const submit = () => {
    const body = { overlap_s: Number(overlap) };
    rotate.mutate({ params: { path: { key_id: replaced.id }, header: idempotency.headers(body) }, body });
  };
  return (
    <div className="grid gap-4">
      <p className="text-muted">A new key with the same name and scopes. Both work until the old one ends.</p>
      <SelectField
        label="The old one ends"
        options={OVERLAPS}
        value={overlap}
        onChange={(event) => setOverlap(event.target.value)}
      />
      {rotate.error && <Notice tone="bad">{asProblem(rotate.error).detail}</Notice>}
      <div className="flex justify-end gap-2">
        <Button onClick={done}>Not now</Button>
        <Button look="primary" pending={rotate.isPending} onClick={submit}>
          Replace the key
        </Button>
      </div>
    </div>
  );
}
