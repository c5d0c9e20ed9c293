"use client";
import { SelectField } from "@/components/ui/field";
import { Form } from "@/components/ui/form";
import { $api, type Schemas } from "@/lib/api/client";
import { useFields } from "@/lib/use-fields";
import { OneTimeSecret } from "./one-time-secret";

const OVERLAPS = [
  { value: "0", label: "At once" },
  { value: "3600", label: "In an hour" },
  { value: "86400", label: "In a day" },
  { value: "604800", label: "In a week" },
];

export function RotateKey({ replaced, done }: { replaced: Schemas["KeyView"]; done: () => void }) {
  const { fields, text } = useFields({ overlap: "86400" });
  const rotate = $api.useMutation("post", "/keys/{key_id}/rotate");
  if (rotate.data) return <OneTimeSecret secret={rotate.data.key} label="New key" done={done} />;
  const send = () => rotate.mutate({ params: { path: { key_id: replaced.id } }, body: { overlap_s: Number(fields.overlap) } });
  return (
    <Form send={send} sending={rotate} action="Replace the key" cancel={done}>
      <p className="text-muted">The new key has the same name and scopes. Both work until the old one expires.</p>
      <SelectField label="The old key expires" options={OVERLAPS} {...text("overlap")} />
    </Form>
  );
}
