import { Download } from "lucide-react";
import type { LinkProps } from "next/link";
import type { ComponentProps, ReactNode } from "react";
import { classes } from "./classes";
import { Link } from "./link";

type Look = "primary" | "secondary" | "quiet" | "danger";

const LOOKS: Record<Look, string> = {
  primary: "bg-accent text-accent-ink border-transparent hover:brightness-110",
  secondary: "bg-surface text-ink border-line-strong/60 hover:bg-hover",
  quiet: "bg-transparent text-ink border-transparent hover:bg-hover",
  danger: "bg-surface text-bad border-bad/50 hover:bg-bad-soft",
};

function look(kind: Look, small: boolean): string {
  return classes(
    "inline-flex items-center justify-center gap-2 whitespace-nowrap rounded-control border font-medium no-underline transition-colors",
    "disabled:opacity-55 aria-disabled:opacity-55",
    small ? "min-h-8 px-2.5 text-sm" : "min-h-10 px-4",
    LOOKS[kind],
  );
}

type ButtonProps = ComponentProps<"button"> & { look?: Look; small?: boolean; pending?: boolean };

/** While `pending` it shows a spinner and cannot be pressed again. */
export function Button({ look: kind = "secondary", small = false, pending = false, className, children, ...rest }: ButtonProps) {
  return (
    <button
      type="button"
      {...rest}
      disabled={rest.disabled || pending}
      aria-busy={pending}
      className={classes(look(kind, small), className)}
    >
      {pending && <Spinner />}
      {children}
    </button>
  );
}

export function ButtonLink<R extends string>({
  look: kind = "secondary",
  small = false,
  className,
  ...rest
}: LinkProps<R> & { look?: Look; small?: boolean; className?: string; children: ReactNode }) {
  return <Link {...rest} className={classes(look(kind, small), className)} />;
}

/** Saves a file of the hub. */
export function DownloadLink({ small = false, children, ...rest }: ComponentProps<"a"> & { small?: boolean }) {
  return (
    <a download {...rest} className={look("secondary", small)}>
      <Download /> {children}
    </a>
  );
}

/** A button that shows only an icon. */
export function IconButton({ label, className, ...rest }: ComponentProps<"button"> & { label: string }) {
  return (
    <button
      type="button"
      aria-label={label}
      title={label}
      {...rest}
      className={classes(
        "inline-flex size-9 items-center justify-center rounded-control text-muted transition-colors hover:bg-hover hover:text-ink disabled:opacity-55",
        className,
      )}
    />
  );
}

export function Spinner() {
  return (
    <span aria-hidden="true" className="size-4 shrink-0 animate-spin rounded-full border-2 border-current border-r-transparent" />
  );
}
