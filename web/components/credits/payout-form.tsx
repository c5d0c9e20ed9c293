"use client";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { CreditsField } from "@/components/ui/credits-field";
import { TextField } from "@/components/ui/field";
import { Form } from "@/components/ui/form";
import { Segments } from "@/components/ui/segments";
import { Notice } from "@/components/ui/states";
import { useToast } from "@/components/ui/toast";
import { $api, type Schemas } from "@/lib/api/client";
import { credits, parseCredits } from "@/lib/format";
import { useIdempotencyKey } from "@/lib/use-idempotency-key";

const PAISA = 10_000; // microcredits; banks know nothing smaller

interface Words {
  amount: string;
  method: string;
  upi: string;
  number: string;
  ifsc: string;
  holder: string;
}

interface PayoutFormProps {
  available: number;
  minimum: number;
  done: () => void;
}

export function PayoutForm({ available, minimum, done }: PayoutFormProps) {
  const [words, setWords] = useState<Words>({ amount: "", method: "upi", upi: "", number: "", ifsc: "", holder: "" });
  const set = (change: Partial<Words>) => setWords((before) => ({ ...before, ...change }));
  const queries = useQueryClient();
  const toast = useToast();
  const idempotency = useIdempotencyKey();
  const ask = $api.useMutation("post", "/payouts", {
    onSuccess: (payout) => {
      idempotency.reset();
      toast.success(payout.status);
      void queries.invalidateQueries();
      done();
    },
  });
  const amount = parseCredits(words.amount);
  const body = amount === null ? null : request(words, amount);
  return (
    <Form
      send={() => body && ask.mutate({ body, params: { header: idempotency.headers(body) } })}
      sending={ask}
      action={<>Ask for {amount ? `₹${credits(amount)}` : "it"}</>}
      ready={body !== null}
      cancel={done}
    >
      <CreditsField
        label="Amount"
        required
        text={words.amount}
        onText={(text) => set({ amount: text })}
        hint={`Up to ${credits(available)}; one credit is one rupee.`}
        error={amount !== null && wrongAmount(amount, { available, minimum })}
      />
      {available >= minimum && (
        <div>
          <Button small onClick={() => set({ amount: plain(available) })}>
            Everything
          </Button>
        </div>
      )}
      <Segments
        label="Pay to"
        value={words.method}
        onChange={(method) => set({ method })}
        options={[
          { value: "upi", label: "UPI id" },
          { value: "bank", label: "Bank account" },
        ]}
      />
      <Target words={words} set={set} />
      {available < minimum && (
        <Notice tone="warn">
          {credits(available)} credits can be paid out now; the least is {credits(minimum)}. Earnings have to mature first.
        </Notice>
      )}
    </Form>
  );
}

function Target({ words, set }: { words: Words; set: (change: Partial<Words>) => void }) {
  if (words.method === "upi") {
    return (
      <TextField
        label="UPI id"
        placeholder="name@bank"
        autoComplete="off"
        spellCheck={false}
        value={words.upi}
        onChange={(event) => set({ upi: event.target.value })}
      />
    );
  }
  return (
    <div className="grid gap-4 sm:grid-cols-2">
      <TextField
        label="Account number"
        inputMode="numeric"
        autoComplete="off"
        value={words.number}
        onChange={(event) => set({ number: event.target.value })}
      />
      <TextField
        label="IFSC"
        placeholder="HDFC0001234"
        autoComplete="off"
        value={words.ifsc}
        onChange={(event) => set({ ifsc: event.target.value })}
      />
      <TextField
        label="Account holder"
        hint="As on the bank's records"
        autoComplete="off"
        className="sm:col-span-2"
        value={words.holder}
        onChange={(event) => set({ holder: event.target.value })}
      />
    </div>
  );
}

/** What the hub would refuse anyway, said before it is asked. Its own numbers decide. */
function wrongAmount(amount: number, { available, minimum }: { available: number; minimum: number }): string | false {
  if (amount < minimum) return `The least is ${credits(minimum)}.`;
  if (amount > available) return `${credits(available)} can be paid out now.`;
  if (amount % PAISA !== 0) return "Whole paise: at most two digits after the point.";
  return false;
}

function request(words: Words, amount: number): Schemas["PayoutRequest"] | null {
  if (words.method === "upi") return words.upi.trim() ? { amount, upi: words.upi.trim() } : null;
  const bank = { account_number: words.number.trim(), ifsc: words.ifsc.trim(), name: words.holder.trim() };
  return bank.account_number && bank.ifsc && bank.name ? { amount, bank } : null;
}

/** Whole paise, as somebody would type it. */
function plain(micro: number): string {
  return credits(micro - (micro % PAISA), { exact: true }).replaceAll(",", "");
}
