/** The same as app/icon.svg. */
export function Mark() {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true" className="size-7 shrink-0 text-accent">
      <rect width="32" height="32" rx="8" fill="currentColor" />
      <g className="fill-accent-ink stroke-accent-ink">
        <path d="M16 16 8.5 9.5M16 16l8-5M16 16l-5.5 8M16 16l8 6.5" strokeOpacity=".75" strokeWidth="1.8" fill="none" />
        <circle cx="16" cy="16" r="3.5" />
        <circle cx="8.5" cy="9.5" r="2" />
        <circle cx="24" cy="11" r="2" />
        <circle cx="10.5" cy="24" r="2" />
        <circle cx="24" cy="22.5" r="2" />
      </g>
    </svg>
  );
}
