"use client";
// One payout, for its owner and for administrators; what may be done with it is the API's word.
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { StateBadge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Fact, Facts } from "@/components/ui/card";
import { Dialog } from "@/components/ui/dialog";
import { TextField } from "@/components/ui/field";
import { Notice } from "@/components/ui/states";
import { useToast } from "@/components/ui/toast";
import { Id, Moment, Money } from "@/components/ui/values";
import { client, type Schemas } from "@/lib/api/client";
import { asProblem } from "@/lib/api/problem";
import { useAccount } from "@/lib/session";
import { useIdempotencyKey } from "@/lib/use-idempotency-key";

type Payout = Schemas["PayoutView"];
type Action = "cancel" | "approve" | "reject" | "paid" | "failed";

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
        <Fact name="UPI id">{payout.upi ?? payout.masked}</Fact>
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

function Actions({ payout }: { payout: Payout }) {
  const me = useAccount();
  const act = useAct(payout);
  const [words, setWords] = useState("");
  const given = words.trim();
  const refuses = payout.can_approve || payout.can_mark;
  // An administrator refuses with a reason; calling it back is for its owner.
  const cancels = payout.can_cancel && (payout.account_id === me.id || !refuses);
  if (!cancels && !refuses) return null;
  return (
    <div className="grid gap-4 border-line border-t pt-4">
      {refuses && (
        <TextField
          label={payout.can_mark ? "The bank's reference, or why it failed" : "Reason for a rejection"}
          hint={payout.can_mark ? "As on the bank's statement (UTR)" : "Its owner reads this. Not needed to approve."}
          maxLength={200}
          value={words}
          onChange={(event) => setWords(event.target.value)}
        />
      )}
      {act.error !== null && <Notice tone="bad">{asProblem(act.error).detail}</Notice>}
      <div className="flex flex-wrap justify-end gap-2">
        {cancels && (
          <Button look="danger" pending={act.doing === "cancel"} onClick={() => act.go("cancel", "")}>
            Cancel the payout
          </Button>
        )}
        {payout.can_approve && (
          <>
            <Button look="danger" disabled={!given} pending={act.doing === "reject"} onClick={() => act.go("reject", given)}>
              Reject
            </Button>
            <Button look="primary" pending={act.doing === "approve"} onClick={() => act.go("approve", "")}>
              Approve
            </Button>
          </>
        )}
        {payout.can_mark && (
          <>
            <Button look="danger" disabled={!given} pending={act.doing === "failed"} onClick={() => act.go("failed", given)}>
              Record as failed
            </Button>
            <Button look="primary" disabled={!given} pending={act.doing === "paid"} onClick={() => act.go("paid", given)}>
              Record as paid
            </Button>
          </>
        )}
      </div>
    </div>
  );
}

function useAct(payout: Payout) {
  const [doing, setDoing] = useState<Action | null>(null);
  const [error, setError] = useState<unknown>(null);
  const queries = useQueryClient();
  const toast = useToast();
  const idempotency = useIdempotencyKey();
  const go = async (action: Action, words: string) => {
    setDoing(action);
    setError(null);
    try {
      const { data, error: refusal } = await send(payout.id, { action, words, header: idempotency.headers([action, words]) });
      if (data) {
        idempotency.reset();
        toast.success(data.status);
        await queries.invalidateQueries();
      } else setError(refusal ?? null);
    } catch (broken) {
      setError(broken);
    } finally {
      setDoing(null);
    }
  };
  return { doing, error, go: (action: Action, words: string) => void go(action, words) };
}

interface Order {
  action: Action;
  words: string;
  header: { "idempotency-key": string };
}

function send(payout_id: string, { action, words, header }: Order) {
  const params = { path: { payout_id }, header };
  switch (action) {
    case "cancel":
      return client.POST("/payouts/{payout_id}/cancel", { params });
    case "approve":
      return client.POST("/payouts/{payout_id}/approve", { params });
    case "reject":
      return client.POST("/payouts/{payout_id}/reject", { params, body: { reason: words } });
    case "paid":
      return client.POST("/payouts/{payout_id}/paid", { params, body: { reference: words } });
    case "failed":
      return client.POST("/payouts/{payout_id}/failed", { params, body: { reason: words } });
  }
}
