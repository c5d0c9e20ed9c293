"use client";
import { classes } from "./classes";
import type { Option } from "./field";

/** A choice of a few options that are all visible. */
export function Segments({
  options,
  value,
  onChange,
  label,
}: {
  options: Option[];
  value: string;
  onChange: (value: string) => void;
  label: string;
}) {
  return (
    <fieldset aria-label={label} className="inline-flex rounded-control border border-line bg-sunken p-0.5">
      {options.map((option) => (
        <button
          key={option.value}
          type="button"
          aria-pressed={option.value === value}
          onClick={() => onChange(option.value)}
          className={classes(
            "min-h-8 whitespace-nowrap rounded-md px-3 font-medium text-sm",
            option.value === value ? "bg-surface text-ink shadow-sm" : "text-muted hover:text-ink",
          )}
        >
          {option.label}
        </button>
      ))}
    </fieldset>
  );
}
