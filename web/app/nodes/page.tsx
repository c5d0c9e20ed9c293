"use client";
import { useSearchParams } from "next/navigation";
import { Suspense } from "react";
import { NodeDetail } from "@/components/nodes/node-detail";
import { NodeList } from "@/components/nodes/node-list";

export default function NodesPage() {
  return (
    <Suspense>
      <ListOrOne />
    </Suspense>
  );
}

function ListOrOne() {
  const id = useSearchParams().get("id");
  return id ? <NodeDetail key={id} id={id} /> : <NodeList />;
}
