"use client";
import { Monitor, Moon, Sun } from "lucide-react";
import { useEffect, useState } from "react";
import { IconButton } from "@/components/ui/button";

const NEXT = { system: "light", light: "dark", dark: "system" } as const;
type Theme = keyof typeof NEXT;
const ICONS = { system: Monitor, light: Sun, dark: Moon };

/** Light, dark, or as the system prefers. Kept in this browser and applied by public/theme.js. */
export function ThemeSwitch() {
  const [theme, setTheme] = useState<Theme>("system");
  useEffect(() => {
    const kept = localStorage.getItem("theme");
    if (kept === "light" || kept === "dark") setTheme(kept);
  }, []);
  const Icon = ICONS[theme];
  return (
    <IconButton
      label={`Theme: ${theme}`}
      onClick={() => {
        const next = NEXT[theme];
        setTheme(next);
        localStorage.setItem("theme", next);
        window.dispatchEvent(new Event("themechange"));
      }}
    >
      <Icon size={18} />
    </IconButton>
  );
}
