"use client";
// From the form to the hub: once, however often the button is pressed or an answer is lost.
import type { Route } from "next";
import { useRouter } from "next/navigation";
import { useRef, useState } from "react";
import { client } from "@/lib/api/client";
import { asProblem, type Problem } from "@/lib/api/problem";
import { randomKey } from "@/lib/use-idempotency-key";
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
      const [only] = jobIds;
      const to = jobIds.length === 1 ? `/jobs?id=${only}` : `/groups?id=${groupId}`;
      router.push(to as Route);
      // It stays busy: the page goes away, and a second press meanwhile must not begin anew.
    } catch (error) {
      setRefusal(asProblem(error));
      busy.current = false;
      setPending(false);
    }
  };
  return { submit, pending, refusal, forgive: () => setRefusal(null) };
}

async function send(form: Form, { spec, terms, runs }: Reading): Promise<{ jobIds: string[]; groupId: string | null }> {
  const key = keyFor(JSON.stringify([spec, terms, runs, form.group.trim()]));
  const groupId = await groupFor(form.group.trim(), { name: spec.name, runs, key });
  const body = { spec, ...terms, items: Array.from({ length: runs }, () => ({})), ...(groupId && { group_id: groupId }) };
  const { data, error } = await client.POST("/jobs", {
    params: { header: { "idempotency-key": key } },
    body: body as unknown as SubmitBody,
  });
  if (!data) throw error;
  return { jobIds: data.job_ids, groupId };
}

/** The group that is named, found or made; several runs have one of their own. */
async function groupFor(name: string, made: { name: string; runs: number; key: string }): Promise<string | null> {
  if (!name && made.runs <= 1) return null;
  if (!name) return makeGroup(made.name, "slices", `${made.key}-group`);
  if (name.startsWith(ID)) return name;
  const query = { name, kind: "group", limit: 1 };
  const { data, error } = await client.GET("/groups", { params: { query } });
  if (!data) throw error;
  return data.groups[0]?.id ?? makeGroup(name, "group", `${made.key}-group`);
}

async function makeGroup(name: string, kind: string, key: string): Promise<string> {
  const body = { name, kind, return_home: false };
  const { data, error } = await client.POST("/groups", { params: { header: { "idempotency-key": key } }, body });
  if (!data) throw error;
  return data.id;
}

/** The same words have the same key until they were accepted, also after a reload of the page. */
function keyFor(words: string): string {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEY) ?? "null") as { words: string; key: string } | null;
    if (kept?.words === words) return kept.key;
    const key = randomKey();
    sessionStorage.setItem(KEY, JSON.stringify({ words, key }));
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
