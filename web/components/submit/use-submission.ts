"use client";
// Submits the form once, however often the button is pressed or an answer is lost.
import { useRouter } from "next/navigation";
import { useRef, useState } from "react";
import { answerOf, client, randomKey } from "@/lib/api/client";
import { asProblem, type Problem } from "@/lib/api/problem";
import { groupHref, jobHref } from "@/lib/links";
import type { Form } from "./form";
import type { Reading, SubmitBody } from "./request";

const KEY = "computepool.submission";
const ID = "grp_";

export function useSubmission(sent: () => void) {
  const router = useRouter();
  const [pending, setPending] = useState(false);
  const [refusal, setRefusal] = useState<Problem | null>(null);
  const busy = useRef(false);

  const submit = async (form: Form, reading: Reading) => {
    if (busy.current) return;
    busy.current = true;
    setPending(true);
    setRefusal(null);
    try {
      const { jobIds, groupId } = await send(form, reading);
      forgetKey();
      sent();
      const [first = ""] = jobIds;
      router.push(jobIds.length === 1 ? jobHref(first) : groupHref(groupId ?? ""));
      // It stays busy until the page has changed, so that another press does not submit again.
    } catch (error) {
      setRefusal(asProblem(error));
      busy.current = false;
      setPending(false);
    }
  };
  return { submit, pending, refusal };
}

async function send(form: Form, { spec, terms, runs }: Reading): Promise<{ jobIds: string[]; groupId: string | null }> {
  const key = keyFor(JSON.stringify([spec, terms, runs, form.group.trim()]));
  const groupId = await groupFor(form.group.trim(), { name: spec.name, runs, key });
  const body = { spec, ...terms, items: Array.from({ length: runs }, () => ({})), ...(groupId && { group_id: groupId }) };
  const params = { header: { "idempotency-key": key } };
  const { job_ids } = await answerOf(client.POST("/jobs", { params, body: body as unknown as SubmitBody }));
  return { jobIds: job_ids, groupId };
}

/** The group that the form names, found or created. Several runs without a name get one of their own. */
async function groupFor(name: string, job: { name: string; runs: number; key: string }): Promise<string | null> {
  if (!name && job.runs <= 1) return null;
  if (name.startsWith(ID)) return name;
  if (name) {
    const query = { name, kind: "group", limit: 1 };
    const { groups } = await answerOf(client.GET("/groups", { params: { query } }));
    if (groups[0]) return groups[0].id;
  }
  const body = { name: name || job.name, kind: name ? "group" : "slices", return_home: false };
  const header = { "idempotency-key": `${job.key}-group` };
  return (await answerOf(client.POST("/groups", { params: { header }, body }))).id;
}

/** The same content has the same key until it is accepted, even after a reload of the page. */
function keyFor(content: string): string {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEY) ?? "null") as { content: string; key: string } | null;
    if (kept?.content === content) return kept.key;
    const key = randomKey();
    sessionStorage.setItem(KEY, JSON.stringify({ content, key }));
    return key;
  } catch {
    return randomKey();
  }
}

function forgetKey(): void {
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // Nothing was kept.
  }
}
