/** A bar from 0 to 1; without a value, an indeterminate one. */
export function Progress({ value, label }: { value: number | null | undefined; label: string }) {
  const share = value == null ? undefined : Math.min(1, Math.max(0, value));
  return (
    <progress
      aria-label={label}
      className="h-2 w-full overflow-hidden rounded-full"
      {...(share !== undefined && { value: share })}
      max={1}
    />
  );
}
