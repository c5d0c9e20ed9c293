import { ChartLine, Coins, Cpu, Globe, Layers, ListChecks, type LucideIcon, ScrollText, ShieldCheck, Trophy } from "lucide-react";
import type { Route } from "next";

interface NavigationItem {
  href: Route;
  label: string;
  icon: LucideIcon;
  role?: "admin";
}

export const NAVIGATION: NavigationItem[] = [
  { href: "/", label: "Mesh", icon: Globe },
  { href: "/jobs", label: "Jobs", icon: ListChecks },
  { href: "/groups", label: "Groups", icon: Layers },
  { href: "/nodes", label: "Nodes", icon: Cpu },
  { href: "/market", label: "Market", icon: ChartLine },
  { href: "/credits", label: "Credits", icon: Coins },
  { href: "/leaderboard", label: "Leaderboard", icon: Trophy },
  { href: "/audit", label: "Audit", icon: ScrollText },
  { href: "/admin", label: "Admin", icon: ShieldCheck, role: "admin" },
];

/** The paths of all pages. */
export const PATHS: readonly string[] = [...NAVIGATION.map(({ href }) => href), "/submit", "/nodes/add", "/account"];

export function isCurrent(item: NavigationItem, pathname: string): boolean {
  return item.href === "/" ? pathname === "/" : pathname.startsWith(item.href);
}
