"use client";
// The form is kept in this tab, so that a reload, a sign-in or a wrong click does not lose it.
import { useEffect, useRef, useState } from "react";
import { useAccount } from "@/lib/session";
import { EMPTY, type Form } from "./form";
import { TEMPLATES } from "./templates";

const KEY = "computepool.submit"; // with the account's ID: the next person who signs in must not see it

interface Draft {
  form: Form;
  again: string; // the job it was filled in from
  fetched: string[]; // input files that are at the hub, not on this person's disk
}

type Changes = Partial<Form> | ((before: Form) => Partial<Form>);

const FIRST: Draft = { form: { ...EMPTY, ...TEMPLATES[0]?.form }, again: "", fetched: [] };

export function useDraft() {
  const key = `${KEY}.${useAccount().id}`;
  const [draft, setDraft] = useState<Draft>(() => readStored(key));
  const over = useRef(false);
  useEffect(() => {
    if (over.current) return;
    try {
      sessionStorage.setItem(key, JSON.stringify(draft));
    } catch {
      // Storage is full or forbidden: the draft lasts as long as the page.
    }
  }, [key, draft]);
  return {
    ...draft,
    change: (changes: Changes) =>
      setDraft((before) => {
        const fields = typeof changes === "function" ? changes(before.form) : changes;
        const kept = fields.inputs ? before.fetched.filter((name) => isSame(name, before.form, fields)) : before.fetched;
        return { ...before, form: { ...before.form, ...fields }, fetched: kept };
      }),
    replace: (next: Partial<Draft> & Pick<Draft, "form">) => setDraft({ again: "", fetched: [], ...next }),
    forget: () => {
      over.current = true;
      try {
        sessionStorage.removeItem(key);
      } catch {
        // Nothing was kept.
      }
    },
  };
}

/** Whether the form still has that file: one that was added here has the same name, but is on this disk. */
function isSame(name: string, before: Form, after: Partial<Form>): boolean {
  const digest = (form: Partial<Form>) => form.inputs?.find((input) => input.name === name);
  return digest(before) === digest(after);
}

function readStored(key: string): Draft {
  try {
    const kept = JSON.parse(sessionStorage.getItem(key) ?? "null") as Partial<Draft> | null;
    if (!kept?.form) return FIRST;
    return { form: { ...EMPTY, ...kept.form }, again: kept.again ?? "", fetched: kept.fetched ?? [] };
  } catch {
    return FIRST;
  }
}
