"use client";
// The pool's numbers every few seconds, and the list of nodes whenever its version has changed.
import { useEffect, useRef } from "react";
import { $api } from "@/lib/api/client";

const EVERY_MS = 3000;
/** Long lists are fetched less often: a second later for each so many nodes. */
const NODES_PER_SECOND = 500;

export function useMesh() {
  const mesh = $api.useQuery("get", "/mesh", undefined, { refetchInterval: EVERY_MS });
  const nodes = $api.useQuery("get", "/mesh/nodes", undefined, { staleTime: Number.POSITIVE_INFINITY });
  const asked = useRef(0);
  const { refetch, isFetching } = nodes;
  const known = nodes.data?.version;
  const size = nodes.data?.nodes.length ?? 0;
  const { data, dataUpdatedAt } = mesh;
  // biome-ignore lint/correctness/useExhaustiveDependencies: checked after every answer with the numbers
  useEffect(() => {
    if (!data || known === undefined || known === data.version || isFetching) return;
    if (Date.now() - asked.current < (size / NODES_PER_SECOND) * 1000) return;
    asked.current = Date.now();
    void refetch();
  }, [data, dataUpdatedAt, known, isFetching, refetch, size]);
  return { mesh, nodes };
}
