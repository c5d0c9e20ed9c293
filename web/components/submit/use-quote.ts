"use client";
// What the job would cost and where it would run, updated with the form and the market.
import { keepPreviousData } from "@tanstack/react-query";
import { $api, type Schemas } from "@/lib/api/client";
import type { FieldName } from "./form";
import { quoteBody, type Reading } from "./request";
import { useDebounced } from "./use-debounced";

const EVERY_MS = 15_000;
/** While one of these cannot be read, there is no quote. */
const PRICED: FieldName[] = [
  ...(["cores", "ram", "disk", "gpus", "vram", "properties"] as const),
  ...(["timeout", "slices", "max_price", "budget"] as const),
];
const HOSTS_MAX = 200;

export function useQuote(reading: Reading) {
  const asked = useDebounced(quoteBody(reading));
  const wrong = PRICED.some((field) => reading.errors[field]);
  const options = { placeholderData: keepPreviousData, refetchInterval: EVERY_MS, enabled: !wrong };
  const quote = $api.useQuery("post", "/quotes", { body: asked }, options);
  const { needs = {}, net, labels, timeout_s } = asked;
  const body = { needs, net, labels, timeout_s, limit: HOSTS_MAX } as Schemas["PreviewRequest"];
  const preview = $api.useQuery("post", "/jobs/preview", { body }, options);
  return { quote, preview, wrong };
}
