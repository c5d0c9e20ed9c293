"use client";
import { Suspense } from "react";
import { AddNode } from "@/components/nodes/add-node";

export default function AddNodePage() {
  return (
    <Suspense>
      <AddNode />
    </Suspense>
  );
}
