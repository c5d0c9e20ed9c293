"use client";
import { Button } from "@/components/ui/button";
import { CreditsField, TextField } from "@/components/ui/field";
import { Form } from "@/components/ui/form";
import { Segments } from "@/components/ui/segments";
import { Notice } from "@/components/ui/states";
import { useToast } from "@/components/ui/toast";
import { $api, type Schemas } from "@/lib/api/client";
import { credits, parseCredits, plainCredits } from "@/lib/format";
import { useFields } from "@/lib/use-fields";

const PAISA = 10_000; // microcredits; the smallest amount that a bank transfers
const EMPTY = { amount: "", method: "upi", upi: "", number: "", ifsc: "", holder: "" };
const METHODS = [
  { value: "upi", label: "UPI ID" },
  { value: "bank", label: "Bank account" },
];

interface Limits {
  available: number;
  minimum: number;
}

export function PayoutForm({ available, minimum, done }: Limits & { done: () => void }) {
  const { fields, set, text } = useFields(EMPTY);
  const toast = useToast();
  const ask = $api.useMutation("post", "/payouts", {
    onSuccess: (payout) => {
      toast.success(payout.status);
      done();
    },
  });
  const amount = parseCredits(fields.amount);
  const body = amount === null ? null : request(fields, amount);
  const most = available - (available % PAISA);
  return (
    <Form
      send={() => body && ask.mutate({ body })}
      sending={ask}
      action={`Request ${amount ? `₹${credits(amount)}` : "the payout"}`}
      ready={body !== null}
      cancel={done}
    >
      <CreditsField
        label="Amount"
        required
        hint={`Up to ${credits(available)}. One credit is one rupee.`}
        {...text("amount")}
        error={amount !== null && amountError(amount, { available, minimum })}
      />
      {available >= minimum && (
        <div>
          <Button small onClick={() => set({ amount: plainCredits(most) })}>
            Use the full amount
          </Button>
        </div>
      )}
      <Segments label="Pay to" value={fields.method} onChange={(method) => set({ method })} options={METHODS} />
      {fields.method === "upi" ? (
        <TextField label="UPI ID" placeholder="name@bank" autoComplete="off" spellCheck={false} {...text("upi")} />
      ) : (
        <div className="grid gap-4 sm:grid-cols-2">
          <TextField label="Account number" inputMode="numeric" autoComplete="off" {...text("number")} />
          <TextField label="IFSC" placeholder="HDFC0001234" autoComplete="off" {...text("ifsc")} />
          <TextField
            label="Account holder"
            hint="As on the bank's records"
            autoComplete="off"
            className="sm:col-span-2"
            {...text("holder")}
          />
        </div>
      )}
      {available < minimum && (
        <Notice tone="warn">
          {credits(available)} credits are withdrawable now; the minimum is {credits(minimum)}. Earnings have to mature first.
        </Notice>
      )}
    </Form>
  );
}

/** Shown before the hub is asked, which decides with its own numbers. */
function amountError(amount: number, { available, minimum }: Limits): string | false {
  if (amount < minimum) return `The minimum is ${credits(minimum)}.`;
  if (amount > available) return `${credits(available)} credits are withdrawable now.`;
  return amount % PAISA !== 0 && "Use at most two decimal places.";
}

function request(fields: typeof EMPTY, amount: number): Schemas["PayoutRequest"] | null {
  if (fields.method === "upi") return fields.upi.trim() ? { amount, upi: fields.upi.trim() } : null;
  const bank = { account_number: fields.number.trim(), ifsc: fields.ifsc.trim(), name: fields.holder.trim() };
  return bank.account_number && bank.ifsc && bank.name ? { amount, bank } : null;
}
