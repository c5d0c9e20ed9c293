import { Suspense } from "react";
import { MeshPage } from "@/components/mesh/mesh-page";

export default function Mesh() {
  return (
    <Suspense>
      <MeshPage />
    </Suspense>
  );
}
