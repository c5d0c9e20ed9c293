export { Leaderboard as default } from "@/components/credits/leaderboard";
