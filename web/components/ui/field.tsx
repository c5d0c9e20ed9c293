"use client";
import { type ComponentProps, type ReactNode, useId } from "react";
import { parseCredits } from "@/lib/format";
import { classes } from "./classes";

interface FieldProps {
  label: string;
  hint?: ReactNode;
  error?: ReactNode;
  className?: string;
  children: (ids: { id: string; "aria-describedby"?: string; "aria-invalid"?: boolean }) => ReactNode;
}

/** A label, the control, a hint, and an error. */
function Field({ label, hint, error, className, children }: FieldProps) {
  const id = useId();
  const described = error ? `${id}-error` : hint ? `${id}-hint` : undefined;
  return (
    <div className={classes("grid min-w-0 content-start gap-1", className)}>
      <label htmlFor={id} className="font-medium text-sm">
        {label}
      </label>
      {children({ id, ...(described && { "aria-describedby": described }), ...(error ? { "aria-invalid": true } : {}) })}
      {hint && !error && (
        <p id={`${id}-hint`} className="text-muted text-sm">
          {hint}
        </p>
      )}
      {error && (
        <p id={`${id}-error`} className="text-bad text-sm">
          {error}
        </p>
      )}
    </div>
  );
}

type TextProps = Omit<ComponentProps<"input">, "children" | "id"> &
  Pick<FieldProps, "label" | "hint" | "error"> & { unit?: string };

export function TextField({ label, hint, error, className, unit, ...rest }: TextProps) {
  return (
    <Field label={label} hint={hint} error={error} className={className}>
      {(ids) => (
        <div className="relative">
          <input {...rest} {...ids} className={classes("control", unit && "pr-14")} />
          {unit && (
            <span className="-translate-y-1/2 pointer-events-none absolute top-1/2 right-3 text-muted text-sm">{unit}</span>
          )}
        </div>
      )}
    </Field>
  );
}

/** An amount of credits. It stays text until it is sent: money is never a binary fraction. */
export function CreditsField(props: ComponentProps<typeof TextField> & { value: string }) {
  const isUnreadable = props.value.trim() !== "" && parseCredits(props.value) === null;
  const error = isUnreadable ? "Enter an amount such as 500 or 512.50, with at most six decimal places." : props.error;
  return <TextField inputMode="decimal" autoComplete="off" unit="cr" {...props} error={error} />;
}

type AreaProps = Omit<ComponentProps<"textarea">, "children" | "id"> & Pick<FieldProps, "label" | "hint" | "error">;

export function TextArea({ label, hint, error, className, ...rest }: AreaProps) {
  return (
    <Field label={label} hint={hint} error={error} className={className}>
      {(ids) => <textarea {...rest} {...ids} className="control font-mono text-sm" />}
    </Field>
  );
}

export interface Option {
  value: string;
  label: string;
}

type SelectProps = Omit<ComponentProps<"select">, "children" | "id"> &
  Pick<FieldProps, "label" | "hint" | "error"> & { options: Option[] };

export function SelectField({ label, hint, error, className, options, ...rest }: SelectProps) {
  return (
    <Field label={label} hint={hint} error={error} className={className}>
      {(ids) => (
        <select {...rest} {...ids} className="control">
          {options.map((option) => (
            <option key={option.value} value={option.value}>
              {option.label}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

export function CheckField({
  label,
  hint,
  ...rest
}: Omit<ComponentProps<"input">, "type" | "id"> & { label: string; hint?: ReactNode }) {
  const id = useId();
  return (
    <div className="flex items-start gap-2.5">
      <input
        {...rest}
        type="checkbox"
        id={id}
        aria-describedby={hint ? `${id}-hint` : undefined}
        className="mt-1 size-4 accent-accent"
      />
      <div>
        <label htmlFor={id}>{label}</label>
        {hint && (
          <p id={`${id}-hint`} className="text-muted text-sm">
            {hint}
          </p>
        )}
      </div>
    </div>
  );
}

interface CheckListProps<Value extends string> {
  legend: string;
  options: [Value, string][]; // with a hint each
  chosen: Value[];
  onChange: (chosen: Value[]) => void;
  children?: ReactNode; // a note below
}

/** Any of several options, in their own order. */
export function CheckList<Value extends string>({ legend, options, chosen, onChange, children }: CheckListProps<Value>) {
  const toggled = (value: Value) =>
    options.map(([option]) => option).filter((option) => chosen.includes(option) !== (option === value));
  return (
    <fieldset className="grid gap-2">
      <legend className="mb-1 font-medium text-sm">{legend}</legend>
      {options.map(([value, hint]) => (
        <CheckField
          key={value}
          label={value}
          hint={hint}
          checked={chosen.includes(value)}
          onChange={() => onChange(toggled(value))}
        />
      ))}
      {children}
    </fieldset>
  );
}
