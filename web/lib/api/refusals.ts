// Keeps a refusal on the page while its query is fetched again; the library would forget it.
import type { Query, QueryCache } from "@tanstack/react-query";

export function keepRefusals(cache: QueryCache): void {
  const refused = new WeakMap<Query, Query["state"]["error"]>();
  cache.subscribe((event) => {
    if (event.type !== "updated") return;
    const { action, query } = event;
    if (action.type === "error") refused.set(query, query.state.error);
    if (action.type === "success") refused.delete(query);
    const error = refused.get(query);
    if (action.type === "fetch" && query.state.status === "pending" && error) query.setState({ status: "error", error });
  });
}
