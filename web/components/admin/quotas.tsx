"use client";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { CreditsField } from "@/components/ui/credits-field";
import { TextField } from "@/components/ui/field";
import { Form } from "@/components/ui/form";
import { useToast } from "@/components/ui/toast";
import { $api, type Schemas } from "@/lib/api/client";
import { credits, parseCredits } from "@/lib/format";

const GB = 1_000_000_000;
const DAY_S = 86_400;
const WHOLE = /^\s*\d{1,9}\s*$/;

interface Words {
  jobs: string;
  spend: string;
  files: string;
  keep: string;
}

/** Empty means: the hub's own limit. */
export function Quotas({ account }: { account: Schemas["AccountView"] }) {
  const [words, setWords] = useState<Words>(() => asText(account));
  const set = (change: Partial<Words>) => setWords((before) => ({ ...before, ...change }));
  const queries = useQueryClient();
  const toast = useToast();
  const save = $api.useMutation("put", "/accounts/{account_id}/quotas", {
    onSuccess: () => {
      toast.success("Limits saved.");
      void queries.invalidateQueries();
    },
  });
  const body = request(words, account);
  const whole = (text: string) => text !== "" && !WHOLE.test(text) && "Enter a whole number, or leave the field empty.";
  return (
    <Form
      send={() => body && save.mutate({ params: { path: { account_id: account.id } }, body })}
      sending={save}
      action="Save the limits"
      ready={body !== null}
    >
      <p className="text-muted">Empty fields use the hub's defaults.</p>
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField
          label="Unfinished jobs at once"
          inputMode="numeric"
          value={words.jobs}
          onChange={(event) => set({ jobs: event.target.value })}
          error={whole(words.jobs)}
        />
        <CreditsField label="Credits spent per day" text={words.spend} onText={(text) => set({ spend: text })} />
        <TextField
          label="Files kept at the hub"
          unit="GB"
          inputMode="numeric"
          value={words.files}
          onChange={(event) => set({ files: event.target.value })}
          error={whole(words.files)}
        />
        <TextField
          label="Kept after a job ends"
          unit="days"
          inputMode="numeric"
          value={words.keep}
          onChange={(event) => set({ keep: event.target.value })}
          error={whole(words.keep)}
        />
      </div>
    </Form>
  );
}

function asText(account: Schemas["AccountView"]): Words {
  const text = (value: number | null | undefined, unit: number) =>
    value === null || value === undefined ? "" : String(Math.round(value / unit));
  return {
    jobs: text(account.jobs_open_max, 1),
    spend:
      account.spend_per_day_max === null || account.spend_per_day_max === undefined
        ? ""
        : credits(account.spend_per_day_max, { exact: true }).replaceAll(",", ""),
    files: text(account.artifact_bytes_max, GB),
    keep: text(account.artifact_keep_s, DAY_S),
  };
}

/** What was not touched is sent as it was, not as the rounded number that is shown. */
function request(words: Words, account: Schemas["AccountView"]): Schemas["QuotaRequest"] | null {
  const before = asText(account);
  const whole = (text: string) => (text.trim() === "" ? null : Number(text));
  if ([words.jobs, words.files, words.keep].some((text) => text.trim() !== "" && !WHOLE.test(text))) return null;
  const spend = words.spend.trim() === "" ? null : parseCredits(words.spend);
  if (spend === null && words.spend.trim() !== "") return null;
  const files = whole(words.files);
  const keep = whole(words.keep);
  return {
    jobs_open_max: whole(words.jobs),
    spend_per_day_max: spend,
    artifact_bytes_max: words.files === before.files ? (account.artifact_bytes_max ?? null) : files === null ? null : files * GB,
    artifact_keep_s: words.keep === before.keep ? (account.artifact_keep_s ?? null) : keep === null ? null : keep * DAY_S,
  };
}
