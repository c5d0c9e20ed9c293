"use client";
// A filter that is typed: it goes into the address when the typing pauses, so that not every letter is a question to the hub.
import type { ComponentProps } from "react";
import { useDebouncedText } from "@/lib/use-debounced-text";
import { useParam } from "@/lib/use-params";
import { TextField } from "./field";

type ParamFieldProps = Omit<ComponentProps<typeof TextField>, "value" | "onChange" | "error"> & {
  name: string;
  allowed?: RegExp; // what the API takes; anything else stays in the field, with `wrong`
  wrong?: string;
};

export function ParamField({ name, allowed, wrong, ...rest }: ParamFieldProps) {
  const [asked, ask] = useParam(name);
  const isWrong = (text: string) => text !== "" && allowed !== undefined && !allowed.test(text);
  const [typed, setTyped] = useDebouncedText(asked, ask, isWrong);
  return (
    <TextField
      spellCheck={false}
      autoComplete="off"
      {...rest}
      value={typed}
      onChange={(event) => setTyped(event.target.value)}
      error={isWrong(typed.trim()) && (wrong ?? "This is not a valid value.")}
    />
  );
}
