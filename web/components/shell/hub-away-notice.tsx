"use client";
import { useEffect, useState } from "react";
import { Notice } from "@/components/ui/states";
import { useConnection } from "@/lib/live";

const LATER_MS = 2000; // a hub that restarts is back before anybody has read it

/** On every page, also where the side bar is not seen. */
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
      <Notice tone="warn">
        The hub does not answer. What you see may be out of date; this page will update when the hub is back.
      </Notice>
    </div>
  );
}
