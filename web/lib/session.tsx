"use client";
// Who is signed in, and at which hub.
import { useQueryClient } from "@tanstack/react-query";
import { createContext, useContext, useEffect, useRef } from "react";
import { $api, type Schemas } from "./api/client";
import { errorToShow } from "./api/problem";
import { ClockProvider } from "./clock";

export type HubInfo = Schemas["HubInfo"];
export type Account = Schemas["AccountView"];

interface Session {
  hub: HubInfo | undefined;
  account: Account | null | undefined; // undefined: not known yet; null: not signed in
  error: unknown;
  retry: () => void;
}

const Context = createContext<Session>({ hub: undefined, account: undefined, error: null, retry: () => {} });

export function SessionProvider({ children }: { children: React.ReactNode }) {
  const query = $api.useQuery("get", "/hub", undefined, { refetchInterval: 20_000, refetchOnWindowFocus: "always" });
  const offset = useRef<number | null>(null);
  if (query.data && offset.current === null) offset.current = query.data.time_ms - Date.now();
  if (useHasAccountChanged(query.data)) return null;
  return (
    <Context.Provider
      value={{
        hub: query.data,
        account: query.data ? (query.data.account ?? null) : undefined,
        error: errorToShow(query),
        retry: () => void query.refetch(),
      }}
    >
      <ClockProvider value={offset.current ?? 0}>{children}</ClockProvider>
    </Context.Provider>
  );
}

/** All tabs share a cookie. After somebody else signs in in another tab, nothing here may be shown or sent as theirs. */
function useHasAccountChanged(hub: HubInfo | undefined): boolean {
  const queries = useQueryClient();
  const first = useRef<string | null>(null);
  const id = hub?.account?.id ?? null;
  first.current ??= id;
  const changed = id !== null && first.current !== id; // after a sign-out, the sign-in page comes
  useEffect(() => {
    if (!changed) return;
    queries.clear();
    sessionStorage.clear();
    window.location.reload();
  }, [changed, queries]);
  return changed;
}

export function useSession(): Session {
  return useContext(Context);
}

/** The account, on pages for signed-in people. */
export function useAccount(): Account {
  const { account } = useSession();
  if (!account) throw new Error("nobody is signed in");
  return account;
}

export function useRole(role: "admin" | "submitter" | "provider"): boolean {
  const { account } = useSession();
  return account?.roles.includes(role) || account?.roles.includes("admin") || false;
}
