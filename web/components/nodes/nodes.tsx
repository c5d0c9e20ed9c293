"use client";
import { useParam } from "@/lib/use-params";
import { NodeDetail } from "./node-detail";
import { NodeList } from "./node-list";

/** The list, or the one that the address names. */
export function Nodes() {
  const [id] = useParam("id");
  return id ? <NodeDetail key={id} id={id} /> : <NodeList />;
}
