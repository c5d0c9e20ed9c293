// Where one can go: one list for the side bar, the drawer and the first letters of a title.
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

/** Every page that a link leads to. */
export const PATHS: readonly string[] = [...NAVIGATION.map(({ href }) => href), "/submit", "/nodes/add", "/account"];

export function isCurrent(place: NavigationItem, pathname: string): boolean {
  return place.href === "/" ? pathname === "/" : pathname.startsWith(place.href);
}
