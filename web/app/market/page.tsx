import { Suspense } from "react";
import { MarketPage } from "@/components/market/market-page";

export default function Market() {
  return (
    <Suspense>
      <MarketPage />
    </Suspense>
  );
}
