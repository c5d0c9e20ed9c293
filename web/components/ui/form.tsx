"use client";
import type { ReactNode } from "react";
import { asProblem } from "@/lib/api/problem";
import { Button } from "./button";
import { Notice } from "./states";

interface FormProps {
  send: () => void;
  sending: { isPending: boolean; error: unknown }; // a mutation
  action: ReactNode; // the label of the button
  ready?: boolean; // all required fields are filled in
  cancel?: () => void;
  children: ReactNode;
}

/** Fields, the hub's refusal if there is one, and the buttons. */
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
      {sending.error != null && <Notice tone="bad">{asProblem(sending.error).detail}</Notice>}
      <div className="flex justify-end gap-2">
        {cancel && <Button onClick={cancel}>Cancel</Button>}
        <Button type="submit" look="primary" disabled={!ready} pending={sending.isPending}>
          {action}
        </Button>
      </div>
    </form>
  );
}
