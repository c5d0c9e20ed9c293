// Where to go after signing in: a page of this dashboard, never another site.
import { BASE_PATH } from "./api/client";

/** The address for `?next=`, checked as the browser will read it. Anything that is not ours becomes the first page. */
export function ownAddress(next: string | null, origin: string, base: string = BASE_PATH): string {
  const first = `${origin}${base}/`;
  // Without a leading slash it could have another scheme. Two slashes, or a backslash, would name a host.
  if (!next?.startsWith("/") || /^\/[/\\]/.test(next)) return first;
  let address: URL;
  try {
    address = new URL(`${base}${next}`, origin);
  } catch {
    return first;
  }
  const { pathname } = address;
  // "/..//host" has our origin, but is not a page.
  const ours = address.origin === origin && pathname.startsWith(`${base}/`) && !pathname.includes("//");
  const isLoop = pathname.startsWith(`${base}/signin`) || pathname.startsWith(`${base}/api/`);
  return ours && !isLoop ? address.href : first;
}

/** The code in a pasted sign-in link, or a code that was typed. */
export function codeIn(text: string): string {
  const pasted = text.trim();
  const found = /[?&]code=([^&#\s]+)/.exec(pasted);
  try {
    return found?.[1] ? decodeURIComponent(found[1]) : pasted;
  } catch {
    return pasted; // not one of our links: the hub will refuse it
  }
}
