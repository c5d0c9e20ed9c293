/** A bar from 0 to 1. Without a value it only says that something goes on. */
export function Progress({ value, label }: { value: number | null | undefined; label: string }) {
  const known = value !== null && value !== undefined;
  const share = known ? Math.min(1, Math.max(0, value)) : undefined;
  return (
    <progress aria-label={label} className="h-2 w-full overflow-hidden rounded-full" {...(known && { value: share })} max={1} />
  );
}
