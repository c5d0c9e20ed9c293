"use client";
import { useQueryClient } from "@tanstack/react-query";
import { Gift } from "lucide-react";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { CreditsField } from "@/components/ui/credits-field";
import { Dialog } from "@/components/ui/dialog";
import { SelectField, TextField } from "@/components/ui/field";
import { Form } from "@/components/ui/form";
import { useToast } from "@/components/ui/toast";
import { $api } from "@/lib/api/client";
import { credits, parseCredits } from "@/lib/format";
import { useIdempotencyKey } from "@/lib/use-idempotency-key";

/** For administrators: a gift, or money that arrived at the bank. */
export function GiveCredits({ account, small = false }: { account?: string | undefined; small?: boolean }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button small={small} onClick={() => setOpen(true)}>
        <Gift size={16} aria-hidden="true" /> Give credits
      </Button>
      <Dialog open={open} onClose={() => setOpen(false)} title="Give credits">
        <TopUpForm account={account ?? ""} done={() => setOpen(false)} />
      </Dialog>
    </>
  );
}

function TopUpForm({ account, done }: { account: string; done: () => void }) {
  const [words, setWords] = useState({ account, amount: "", source: "promo", note: "" });
  const queries = useQueryClient();
  const toast = useToast();
  const idempotency = useIdempotencyKey();
  const amount = parseCredits(words.amount);
  const give = $api.useMutation("post", "/credits/top-ups", {
    onSuccess: (reply) => {
      idempotency.reset();
      toast.success(
        reply.approval_id
          ? "Saved: the credits are given once a second administrator agrees."
          : `${reply.name} was given ${credits(reply.amount)} credits and can spend ${credits(reply.available)} now.`,
      );
      void queries.invalidateQueries();
      done();
    },
  });
  const submit = () => {
    if (amount === null) return;
    const body = {
      account: words.account.trim(),
      amount,
      source: words.source === "bank" ? ("bank" as const) : ("promo" as const),
      note: words.note.trim() || null,
    };
    give.mutate({ body, params: { header: idempotency.headers(body) } });
  };
  return (
    <Form
      send={submit}
      sending={give}
      action={<>Give {amount ? `${credits(amount)} credits` : "credits"}</>}
      ready={Boolean(amount && words.account.trim())}
      cancel={done}
    >
      <TextField
        label="Account"
        required
        hint="Its name or its id"
        value={words.account}
        onChange={(event) => setWords({ ...words, account: event.target.value })}
      />
      <CreditsField label="Amount" required text={words.amount} onText={(text) => setWords({ ...words, amount: text })} />
      <SelectField
        label="Reason"
        value={words.source}
        onChange={(event) => setWords({ ...words, source: event.target.value })}
        options={[
          { value: "promo", label: "Gift of the hub" },
          { value: "bank", label: "Payment received" },
        ]}
      />
      <TextField
        label="Note"
        hint="Appears on the account's statement: the bank's reference, or the reason"
        maxLength={200}
        value={words.note}
        onChange={(event) => setWords({ ...words, note: event.target.value })}
      />
    </Form>
  );
}
