"use client";
// What the job would cost and who would take it, asked again as the form changes and as the market moves.
import { keepPreviousData } from "@tanstack/react-query";
import { $api, type Schemas } from "@/lib/api/client";
import { quoteBody, type Reading } from "./request";
import { useSettled } from "./use-settled";

const EVERY_MS = 15_000;
const HOSTS_MAX = 200;

export function useQuote(reading: Reading) {
  const asked = useSettled(quoteBody(reading));
  const options = { placeholderData: keepPreviousData, refetchInterval: EVERY_MS };
  const quote = $api.useQuery("post", "/quotes", { body: asked }, options);
  const { needs = {}, net, labels, timeout_s } = asked;
  const body = { needs, net, labels, timeout_s, limit: HOSTS_MAX } as Schemas["PreviewRequest"];
  const preview = $api.useQuery("post", "/jobs/preview", { body }, options);
  return { quote, preview };
}
