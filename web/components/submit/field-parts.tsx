"use client";
// What the parts of the form are made of.
import type { Errors, FieldName, Form } from "./form";

export interface FieldsProps {
  form: Form;
  errors: Errors;
  change: (fields: Partial<Form>) => void;
}

/** A text field of the form, by its name. */
export function useText({ form, errors, change }: FieldsProps) {
  return (name: FieldName) => ({
    value: String(form[name]),
    error: errors[name],
    onChange: (event: { target: { value: string } }) => change({ [name]: event.target.value }),
    autoComplete: "off",
    spellCheck: false,
  });
}

export function hasError(errors: Errors, names: FieldName[]): boolean {
  return names.some((name) => errors[name]);
}

/** What is filled in of these, shortly. */
export function summarize(form: Form, parts: [FieldName, string][], nothing: string): string {
  const found = parts.flatMap(([name, word]) => {
    const value = form[name];
    return value === "" || value === false ? [] : value === true ? [word] : [`${word} ${String(value).replaceAll("\n", ", ")}`];
  });
  return found.join(" · ") || nothing;
}

/** What a text field proposes. */
export function Choices({ id, values }: { id: string; values: string[] }) {
  return (
    <datalist id={id}>
      {values.map((value) => (
        <option key={value} value={value} />
      ))}
    </datalist>
  );
}
