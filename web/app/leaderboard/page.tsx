import { Suspense } from "react";
import { Leaderboard } from "@/components/credits/leaderboard";

export default function LeaderboardPage() {
  return (
    <Suspense>
      <Leaderboard />
    </Suspense>
  );
}
