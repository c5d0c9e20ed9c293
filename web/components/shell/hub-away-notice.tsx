"use client";
import { useEffect, useState } from "react";
import { Notice } from "@/components/ui/states";
import { useConnection } from "@/lib/live";

const LATER_MS = 2000; // not for a short restart

/** On every page, even where the side bar is hidden. */
export function HubAwayNotice() {
  const away = useConnection() === "broken";
  const [shown, setShown] = useState(false);
  useEffect(() => {
    if (!away) return setShown(false);
    const timer = setTimeout(() => setShown(true), LATER_MS);
    return () => clearTimeout(timer);
  }, [away]);
  if (!shown) return null;
  return (
    <div role="status" className="px-4 pt-4 sm:px-6">
      <Notice tone="warn">The hub does not answer. This page may be out of date. It updates when the hub is back.</Notice>
    </div>
  );
}
