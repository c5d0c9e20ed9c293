"use client";
import { MutationCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { LucideProvider } from "lucide-react";
import { type ReactNode, useState } from "react";
import { ToastProvider } from "@/components/ui/toast";
import { asProblem, isTransient } from "@/lib/api/problem";
import { keepRefusals } from "@/lib/api/refusals";
import { LiveProvider } from "@/lib/live";
import { cachePages } from "@/lib/offline-pages";
import { SessionProvider } from "@/lib/session";

if (typeof window !== "undefined") cachePages();

function makeQueries(): QueryClient {
  const queries: QueryClient = new QueryClient({
    mutationCache: new MutationCache({ onSuccess: () => void queries.invalidateQueries() }),
    defaultOptions: {
      queries: {
        staleTime: 2000,
        // The stream of news reports what changed, also after a while in the background.
        refetchOnWindowFocus: false,
        // Temporary failures are retried for as long as the page is open; a refusal is shown at once.
        retry: (_failures, error) => isTransient(asProblem(error)),
        retryDelay: (failures, error) => (asProblem(error).retry_after_s ?? Math.min(2 ** failures, 15)) * 1000,
        // A hub on this machine or network needs no internet.
        networkMode: "always",
      },
      mutations: { networkMode: "always" },
    },
  });
  keepRefusals(queries.getQueryCache());
  return queries;
}

export function Providers({ children }: { children: ReactNode }) {
  const [queries] = useState(makeQueries);
  return (
    <QueryClientProvider client={queries}>
      <SessionProvider>
        <LiveProvider>
          <ToastProvider>
            <LucideProvider size={16}>{children}</LucideProvider>
          </ToastProvider>
        </LiveProvider>
      </SessionProvider>
    </QueryClientProvider>
  );
}
