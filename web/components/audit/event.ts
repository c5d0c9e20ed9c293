import type { Schemas } from "@/lib/api/client";

export type HubEvent = Schemas["EventView"];
