import { ArrowLeft } from "lucide-react";
import type { Route } from "next";
import { Link } from "./link";

/** From the page of one thing to the list of its kind. */
export function Back({ href, children }: { href: Route; children: string }) {
  return (
    <Link href={href} className="mb-1 flex w-fit items-center gap-1.5 text-muted text-sm no-underline hover:text-ink">
      <ArrowLeft size={15} aria-hidden="true" /> {children}
    </Link>
  );
}
