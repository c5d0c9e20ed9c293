"use client";
import { useState } from "react";

/** What a form's fields hold; `text(name)` makes a control show and change one of them. */
export function useFields<Fields extends object>(initial: Fields) {
  const [fields, setFields] = useState(initial);
  const set = (changes: Partial<Fields>) => setFields((before) => ({ ...before, ...changes }));
  const text = (name: keyof Fields) => ({
    value: String(fields[name]),
    onChange: (event: { target: { value: string } }) => set({ [name]: event.target.value } as Partial<Fields>),
  });
  return { fields, set, text };
}
