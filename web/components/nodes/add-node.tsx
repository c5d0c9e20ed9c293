"use client";
// Two steps: create a code; then run a command on the machine and watch it join.
import type { Route } from "next";
import { useRouter, useSearchParams } from "next/navigation";
import { useCallback, useState } from "react";

import { Card } from "@/components/ui/card";
import { Back } from "@/components/ui/detail";
import { Page } from "@/components/ui/page";
import { Empty } from "@/components/ui/states";
import type { Schemas } from "@/lib/api/client";
import { useRole } from "@/lib/session";
import { JoinProgress } from "./join-progress";
import { MakeCode, OpenCodes } from "./make-code";

export type MadeCode = Schemas["EnrolCodeReply"];

export function AddNode() {
  const lends = useRole("provider");
  const id = useSearchParams().get("code_id");
  const { made, keep, forget } = useMadeCode(id);
  const router = useRouter();
  return (
    <Page
      title="Add a node"
      above={<Back kind="node" />}
      note="A Linux machine that asks the hub for work. It opens no port and runs other people's jobs in a sandbox."
    >
      {!lends ? (
        <Card>
          <Empty title="Your account may not lend machines">
            <p>An administrator can give it the role “provider”.</p>
          </Empty>
        </Card>
      ) : id ? (
        <JoinProgress key={id} id={id} made={made} forget={forget} />
      ) : (
        <div className="grid max-w-4xl gap-5">
          <MakeCode
            onMade={(code) => {
              keep(code);
              router.push(`/nodes/add?code_id=${encodeURIComponent(code.id ?? "")}` as Route);
            }}
          />
          <OpenCodes />
        </div>
      )}
    </Page>
  );
}

const KEPT = "computepool.joining";

/** The hub shows a code once. This tab remembers it, so that one can leave the page and come back. */
function useMadeCode(id: string | null) {
  const [latest, setLatest] = useState<MadeCode | null>(null);
  const keep = useCallback((code: MadeCode) => {
    setLatest(code);
    sessionStorage.setItem(KEPT, JSON.stringify(code));
  }, []);
  const forget = useCallback(() => sessionStorage.removeItem(KEPT), []);
  const known = latest ?? (id ? readRemembered() : null);
  return { made: known?.id === id ? known : null, keep, forget };
}

function readRemembered(): MadeCode | null {
  if (typeof window === "undefined") return null;
  const text = sessionStorage.getItem(KEPT);
  return text === null ? null : (JSON.parse(text) as MadeCode);
}
