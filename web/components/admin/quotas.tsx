"use client";
import { CreditsField, TextField } from "@/components/ui/field";
import { Form } from "@/components/ui/form";
import { useToast } from "@/components/ui/toast";
import { $api, type Schemas } from "@/lib/api/client";
import { parseCredits, plainCredits } from "@/lib/format";
import { useFields } from "@/lib/use-fields";

type Account = Schemas["AccountView"];

const GB = 1_000_000_000;
const DAY_S = 86_400;
const isWhole = (text: string) => /^\s*(\d{1,9}\s*)?$/.test(text);

export function Quotas({ account }: { account: Account }) {
  const { fields, text } = useFields(asText(account));
  const toast = useToast();
  const save = $api.useMutation("put", "/accounts/{account_id}/quotas", { onSuccess: () => toast.success("Limits saved.") });
  const body = request(fields, account);
  const whole = (name: keyof typeof fields) => ({
    ...text(name),
    error: !isWhole(fields[name]) && "Enter a whole number, or leave the field empty.",
  });
  return (
    <Form
      send={() => body && save.mutate({ params: { path: { account_id: account.id } }, body })}
      sending={save}
      action="Save the limits"
      ready={body !== null}
    >
      <p className="text-muted">Empty fields use the hub's defaults.</p>
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField label="Unfinished jobs at once" inputMode="numeric" {...whole("jobs")} />
        <CreditsField label="Credits spent per day" {...text("spend")} />
        <TextField label="Files kept at the hub" unit="GB" inputMode="numeric" {...whole("files")} />
        <TextField label="Kept after a job ends" unit="days" inputMode="numeric" {...whole("keep")} />
      </div>
    </Form>
  );
}

function asText(account: Account) {
  const text = (value: number | null | undefined, unit: number) => (value == null ? "" : String(Math.round(value / unit)));
  return {
    jobs: text(account.jobs_open_max, 1),
    spend: account.spend_per_day_max == null ? "" : plainCredits(account.spend_per_day_max),
    files: text(account.artifact_bytes_max, GB),
    keep: text(account.artifact_keep_s, DAY_S),
  };
}

/** An untouched field is sent as it was, not as the rounded number that is shown. Null: a field cannot be read. */
function request(fields: ReturnType<typeof asText>, account: Account): Schemas["QuotaRequest"] | null {
  const before = asText(account);
  const spend = parseCredits(fields.spend);
  if (![fields.jobs, fields.files, fields.keep].every(isWhole) || (spend === null && fields.spend.trim())) return null;
  const scaled = (name: "jobs" | "files" | "keep", unit: number, was: number | null | undefined) => {
    if (fields[name] === before[name]) return was ?? null;
    return fields[name].trim() ? Number(fields[name]) * unit : null;
  };
  return {
    jobs_open_max: scaled("jobs", 1, account.jobs_open_max),
    spend_per_day_max: spend,
    artifact_bytes_max: scaled("files", GB, account.artifact_bytes_max),
    artifact_keep_s: scaled("keep", DAY_S, account.artifact_keep_s),
  };
}
