"use client";
// A field for an amount: what is typed stays text until it is sent, and money is never a fraction of binary digits.
import type { ReactNode } from "react";
import { parseCredits } from "@/lib/format";
import { TextField } from "./field";

interface CreditsFieldProps {
  label: string;
  text: string;
  onText: (text: string) => void;
  hint?: ReactNode;
  error?: ReactNode;
  unit?: string;
  required?: boolean;
}

export function CreditsField({ label, text, onText, hint, error, unit = "cr", required = false }: CreditsFieldProps) {
  const unreadable = text.trim() !== "" && parseCredits(text) === null;
  return (
    <TextField
      label={label}
      inputMode="decimal"
      autoComplete="off"
      required={required}
      unit={unit}
      value={text}
      onChange={(event) => onText(event.target.value)}
      hint={hint}
      error={unreadable ? "An amount like 500 or 512.50, with at most six digits after the point." : error}
    />
  );
}
