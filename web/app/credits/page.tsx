import { Suspense } from "react";
import { CreditsPage } from "@/components/credits/credits-page";

export default function Credits() {
  return (
    <Suspense>
      <CreditsPage />
    </Suspense>
  );
}
