"use client";
import { useParam } from "@/lib/use-params";
import { GroupList } from "./group-list";
import { GroupPage } from "./group-page";

/** The list, or the one that the address names. */
export function Groups() {
  const [id] = useParam("id");
  return id ? <GroupPage key={id} id={id} /> : <GroupList />;
}
