"use client";
import { $api } from "@/lib/api/client";
import { shortId } from "@/lib/format";

/** An account by its name. "hub" and deleted accounts stay as they are. */
export function AccountName({ id }: { id: string }) {
  const query = $api.useQuery("get", "/accounts", { params: { query: { limit: 500 } } }, { enabled: id.startsWith("acc_") });
  const found = query.data?.accounts.find((account) => account.id === id);
  return <span title={id}>{found?.name ?? shortId(id)}</span>;
}
