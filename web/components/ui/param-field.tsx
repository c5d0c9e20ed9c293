"use client";
// A filter that is typed: it goes into the address when the typing pauses, so that not every letter is a question to the hub.
import { type ComponentProps, useEffect, useRef, useState } from "react";
import { useParam } from "@/lib/use-params";
import { TextField } from "./field";

const TYPING_MS = 350;

type ParamFieldProps = Omit<ComponentProps<typeof TextField>, "value" | "onChange" | "error"> & {
  name: string;
  allowed?: RegExp; // what the API takes; anything else stays in the field, with `wrong`
  wrong?: string;
};

export function ParamField({ name, allowed, wrong, ...rest }: ParamFieldProps) {
  const [asked, ask] = useParam(name);
  const [typed, setTyped] = useState(asked);
  const latest = useRef({ asked, ask });
  latest.current = { asked, ask };
  const bad = typed !== "" && allowed !== undefined && !allowed.test(typed.trim());
  // Somebody went back, or took all filters away.
  useEffect(() => setTyped(asked), [asked]);
  useEffect(() => {
    const text = typed.trim();
    if (bad || text === latest.current.asked) return;
    const timer = setTimeout(() => latest.current.ask(text), TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed, bad]);
  return (
    <TextField
      spellCheck={false}
      autoComplete="off"
      {...rest}
      value={typed}
      onChange={(event) => setTyped(event.target.value)}
      error={bad && (wrong ?? "This is not what the hub knows here.")}
    />
  );
}
