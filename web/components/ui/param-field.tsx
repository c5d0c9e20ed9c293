"use client";
// Filters that live in the page's address.
import type { ComponentProps } from "react";
import { useDebouncedText } from "@/lib/use-debounced-text";
import { useParam, useParamState } from "@/lib/use-params";
import { SelectField, TextField } from "./field";

type ParamFieldProps = Omit<ComponentProps<typeof TextField>, "value" | "onChange" | "error"> & {
  name: string;
  allowed?: RegExp; // what the API accepts; anything else stays in the field, with `wrong`
  wrong?: string;
};

/** A text goes into the address when the typing pauses. */
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
      error={isWrong(typed.trim()) && (wrong ?? "This value is not valid.")}
    />
  );
}

export function ParamSelect({
  name,
  ...rest
}: Omit<ComponentProps<typeof SelectField>, "value" | "onChange"> & { name: string }) {
  const [value, setValue] = useParamState(name);
  return <SelectField {...rest} value={value} onChange={(event) => setValue(event.target.value)} />;
}
