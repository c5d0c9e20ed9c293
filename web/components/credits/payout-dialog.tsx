"use client";
// One payout, for its owner and for administrators. The API says what may be done with it.
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { StateBadge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Fact, Facts } from "@/components/ui/card";
import { Dialog } from "@/components/ui/dialog";
import { TextField } from "@/components/ui/field";
import { Notice } from "@/components/ui/states";
import { useToast } from "@/components/ui/toast";
import { Id, Moment, Money } from "@/components/ui/values";
import { answerOf, client, type Schemas } from "@/lib/api/client";
import { asProblem } from "@/lib/api/problem";
import { useAccount } from "@/lib/session";

type Payout = Schemas["PayoutView"];

export function PayoutDialog({ payout, onClose }: { payout: Payout | null; onClose: () => void }) {
  return (
    <Dialog open={payout !== null} onClose={onClose} title="Payout" note={payout?.status} wide>
      {payout && (
        <div className="grid gap-5">
          <About payout={payout} />
          <Actions key={payout.id} payout={payout} />
        </div>
      )}
    </Dialog>
  );
}

function About({ payout }: { payout: Payout }) {
  return (
    <Facts columns={3}>
      <Fact name="Amount">
        <Money micro={payout.amount} unit />
      </Fact>
      <Fact name="State">
        <StateBadge state={payout.state} />
      </Fact>
      <Fact name="Account">{payout.account_name}</Fact>
      {payout.bank ? (
        <>
          <Fact name="Bank account">{payout.bank.account_number}</Fact>
          <Fact name="IFSC">{payout.bank.ifsc}</Fact>
          <Fact name="Holder">{payout.bank.name}</Fact>
        </>
      ) : (
        <Fact name="UPI ID">{payout.upi ?? payout.masked}</Fact>
      )}
      <Fact name="Requested">
        <Moment ms={payout.created_at_ms} />
      </Fact>
      <Fact name="Changed">
        <Moment ms={payout.updated_at_ms} />
      </Fact>
      <Fact name="Reference">
        <Id id={payout.id} />
      </Fact>
      {payout.provider_ref && <Fact name="The bank's reference">{payout.provider_ref}</Fact>}
      {payout.reason && <Fact name="Reason">{payout.reason}</Fact>}
    </Facts>
  );
}

const ACTIONS = {
  cancel: "Cancel the payout",
  approve: "Approve",
  reject: "Reject",
  paid: "Record as paid",
  failed: "Record as failed",
};
type Action = keyof typeof ACTIONS;

function Actions({ payout }: { payout: Payout }) {
  const me = useAccount();
  const toast = useToast();
  const [words, setWords] = useState("");
  const given = words.trim();
  const act = useMutation({
    mutationFn: (action: Action) => send(payout.id, action, given),
    onSuccess: ({ status }) => toast.success(status),
  });
  const decides = payout.can_approve || payout.can_mark;
  // An administrator rejects it with a reason instead.
  const cancels = payout.can_cancel && (payout.account_id === me.id || !decides);
  if (!cancels && !decides) return null;
  const button = (action: Action, { primary = false, needsWords = false } = {}) => (
    <Button
      look={primary ? "primary" : "danger"}
      disabled={(needsWords && !given) || act.isPending}
      pending={act.isPending && act.variables === action}
      onClick={() => act.mutate(action)}
    >
      {ACTIONS[action]}
    </Button>
  );
  return (
    <div className="grid gap-4 border-line border-t pt-4">
      {decides && (
        <TextField
          label={payout.can_mark ? "The bank's reference, or why it failed" : "Reason for a rejection"}
          hint={payout.can_mark ? "As on the bank's statement (UTR)" : "The account's owner reads this. Not needed to approve."}
          maxLength={200}
          value={words}
          onChange={(event) => setWords(event.target.value)}
        />
      )}
      {act.error && <Notice tone="bad">{asProblem(act.error).detail}</Notice>}
      <div className="flex flex-wrap justify-end gap-2">
        {cancels && button("cancel")}
        {payout.can_approve && button("reject", { needsWords: true })}
        {payout.can_approve && button("approve", { primary: true })}
        {payout.can_mark && button("failed", { needsWords: true })}
        {payout.can_mark && button("paid", { primary: true, needsWords: true })}
      </div>
    </div>
  );
}

function send(payout_id: string, action: Action, words: string): Promise<Payout> {
  const params = { path: { payout_id } };
  switch (action) {
    case "cancel":
      return answerOf(client.POST("/payouts/{payout_id}/cancel", { params }));
    case "approve":
      return answerOf(client.POST("/payouts/{payout_id}/approve", { params }));
    case "reject":
      return answerOf(client.POST("/payouts/{payout_id}/reject", { params, body: { reason: words } }));
    case "paid":
      return answerOf(client.POST("/payouts/{payout_id}/paid", { params, body: { reference: words } }));
    case "failed":
      return answerOf(client.POST("/payouts/{payout_id}/failed", { params, body: { reason: words } }));
  }
}
