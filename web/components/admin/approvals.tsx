"use client";
import { UsersRound } from "lucide-react";
import { useState } from "react";
import { Badge } from "@/components/ui/badge";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { TextField } from "@/components/ui/field";
import { Empty, Notice, QueryView, SkeletonRows } from "@/components/ui/states";
import { useToast } from "@/components/ui/toast";
import { Ago } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { asProblem } from "@/lib/api/problem";

type Approval = Schemas["ApprovalView"];

export function Approvals() {
  const query = $api.useQuery("get", "/approvals");
  return (
    <Card title="Waiting for an administrator" note="Payouts, node reviews, and requests from other administrators.">
      <QueryView query={query} skeleton={<SkeletonRows rows={3} />}>
        {({ approvals }) =>
          approvals.length === 0 ? (
            <Empty icon={UsersRound} title="Nothing to approve">
              <p>
                With two-person approval (<code>COMPUTEPOOL_TWO_PERSON=payouts,top-ups,roles</code>), gifts of credits, changes of
                roles and payouts wait here for a second administrator.
              </p>
            </Empty>
          ) : (
            <ul className="grid gap-3">
              {approvals.map((approval) => (
                <li key={approval.id}>
                  <One approval={approval} />
                </li>
              ))}
            </ul>
          )
        }
      </QueryView>
    </Card>
  );
}

function One({ approval }: { approval: Approval }) {
  const [reason, setReason] = useState("");
  const toast = useToast();
  const params = { path: { approval_id: approval.id } };
  const approve = $api.useMutation("post", "/approvals/{approval_id}/approve", { onSuccess: () => toast.success("Approved.") });
  const reject = $api.useMutation("post", "/approvals/{approval_id}/reject", { onSuccess: () => toast.success("Rejected.") });
  const error = approve.error ?? reject.error;
  return (
    <div className="grid gap-3 rounded-control border border-line p-4">
      <div>
        <p className="flex flex-wrap items-center gap-2">
          <Badge>{approval.kind}</Badge>
          <span className="break-words">{approval.summary}</span>
        </p>
        <p className="mt-1 text-muted text-sm">
          requested by {approval.requested_by}, <Ago ms={approval.requested_at_ms} />
          {approval.approved_by && `; approved by ${approval.approved_by}`}
        </p>
      </div>
      {error && <Notice tone="bad">{asProblem(error).detail}</Notice>}
      <div className="flex flex-wrap items-end gap-2">
        <TextField
          label="Reason for a rejection"
          className="grow"
          maxLength={200}
          value={reason}
          onChange={(event) => setReason(event.target.value)}
        />
        <Button
          look="danger"
          disabled={!reason.trim()}
          pending={reject.isPending}
          onClick={() => reject.mutate({ params, body: { reason: reason.trim() } })}
        >
          Reject
        </Button>
        <Button
          look="primary"
          disabled={!approval.can_approve}
          title={approval.can_approve ? undefined : "Another administrator must approve your request"}
          pending={approve.isPending}
          onClick={() => approve.mutate({ params })}
        >
          Approve
        </Button>
      </div>
    </div>
  );
}
