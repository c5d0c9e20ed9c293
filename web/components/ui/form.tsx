"use client";
import type { ReactNode } from "react";
import { asProblem } from "@/lib/api/problem";
import { Button } from "./button";
import { Notice } from "./states";

interface FormProps {
  send: () => void;
  sending: { isPending: boolean; error: unknown }; // a mutation
  action: ReactNode; // the words on the button
  ready?: boolean; // everything that is needed has been said
  cancel?: () => void;
  children: ReactNode;
}

/** Fields, the hub's refusal if there is one, and the button; in a dialog also the way out. */
export function Form({ send, sending, action, ready = true, cancel, children }: FormProps) {
  return (
    <form
      className="grid gap-4"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      {children}
      {sending.error !== null && sending.error !== undefined && <Notice tone="bad">{asProblem(sending.error).detail}</Notice>}
      <div className="flex justify-end gap-2">
        {cancel && <Button onClick={cancel}>Not now</Button>}
        <Button type="submit" look="primary" disabled={!ready} pending={sending.isPending}>
          {action}
        </Button>
      </div>
    </form>
  );
}
