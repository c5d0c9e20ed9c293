"use client";
import { Gift } from "lucide-react";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { Dialog } from "@/components/ui/dialog";
import { CreditsField, SelectField, TextField } from "@/components/ui/field";
import { Form } from "@/components/ui/form";
import { useToast } from "@/components/ui/toast";
import { $api } from "@/lib/api/client";
import { credits, parseCredits } from "@/lib/format";
import { useFields } from "@/lib/use-fields";

const SOURCES = [
  { value: "promo", label: "Gift" },
  { value: "bank", label: "Payment received" },
];

/** For administrators. */
export function GiveCredits({ account, small = false }: { account?: string | undefined; small?: boolean }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button small={small} onClick={() => setOpen(true)}>
        <Gift /> Give credits
      </Button>
      <Dialog open={open} onClose={() => setOpen(false)} title="Give credits">
        <TopUpForm account={account ?? ""} done={() => setOpen(false)} />
      </Dialog>
    </>
  );
}

function TopUpForm({ account, done }: { account: string; done: () => void }) {
  const { fields, text } = useFields({ account, amount: "", source: "promo", note: "" });
  const toast = useToast();
  const give = $api.useMutation("post", "/credits/top-ups", {
    onSuccess: (reply) => {
      toast.success(
        reply.approval_id
          ? "Saved: the credits are given once a second administrator approves."
          : `${reply.name} was given ${credits(reply.amount)} credits and can spend ${credits(reply.available)} now.`,
      );
      done();
    },
  });
  const amount = parseCredits(fields.amount);
  const send = () => {
    const source = fields.source as "promo" | "bank";
    const body = { account: fields.account.trim(), amount: amount ?? 0, source, note: fields.note.trim() || null };
    give.mutate({ body });
  };
  return (
    <Form
      send={send}
      sending={give}
      action={`Give ${amount ? `${credits(amount)} credits` : "credits"}`}
      ready={Boolean(amount && fields.account.trim())}
      cancel={done}
    >
      <TextField label="Account" required hint="Name or ID" {...text("account")} />
      <CreditsField label="Amount" required {...text("amount")} />
      <SelectField label="Reason" options={SOURCES} {...text("source")} />
      <TextField
        label="Note"
        hint="Appears on the account's statement: the bank's reference, or the reason"
        maxLength={200}
        {...text("note")}
      />
    </Form>
  );
}
