// Where somebody may be sent after signing in: a page of this dashboard, never another site.
import { BASE_PATH } from "./api/client";

/** The address to go to for `?next=`. Judged as the browser will read it, and whatever is not ours becomes the first page. */
export function ownAddress(next: string | null, origin: string, base: string = BASE_PATH): string {
  const first = `${origin}${base}/`;
  // Without a slash first it could be another scheme; two slashes, or a backslash that browsers read as one, name a host.
  if (!next?.startsWith("/") || /^\/[/\\]/.test(next)) return first;
  let address: URL;
  try {
    address = new URL(`${base}${next}`, origin);
  } catch {
    return first;
  }
  const { pathname } = address;
  // "/..//host" is ours to the browser, but no path that a page could be at.
  const ours = address.origin === origin && pathname.startsWith(`${base}/`) && !pathname.includes("//");
  const round = pathname.startsWith(`${base}/signin`) || pathname.startsWith(`${base}/api/`);
  return ours && !round ? address.href : first;
}

/** The code of a sign-in link that was pasted whole, or a code that was typed as it is. */
export function codeIn(text: string): string {
  const pasted = text.trim();
  const found = /[?&]code=([^&#\s]+)/.exec(pasted);
  try {
    return found?.[1] ? decodeURIComponent(found[1]) : pasted;
  } catch {
    return pasted; // no link of ours: the hub says that it knows no such code
  }
}
