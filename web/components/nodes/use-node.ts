"use client";
import { useQueryClient } from "@tanstack/react-query";
import { useCallback } from "react";
import { $api } from "@/lib/api/client";

const EVERY_MS = 5000; // its load and when it was heard come with no event

export function useNode(id: string) {
  return $api.useQuery("get", "/nodes/{node_id}", { params: { path: { node_id: id } } }, { refetchInterval: EVERY_MS });
}

/** After something was done to a node: ask again about whatever is shown of nodes. */
export function useRenewNodes(): () => Promise<void> {
  const queries = useQueryClient();
  return useCallback(
    () =>
      queries.invalidateQueries({
        predicate: ({ queryKey: [, path] }) => typeof path === "string" && /^\/(nodes|market|queue)/.test(path),
      }),
    [queries],
  );
}
