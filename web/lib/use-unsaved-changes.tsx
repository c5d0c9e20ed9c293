"use client";
import type { Route } from "next";
import { useRouter } from "next/navigation";
import { type ReactNode, useEffect, useState } from "react";
import { Button } from "@/components/ui/button";
import { Dialog } from "@/components/ui/dialog";
import { BASE_PATH } from "./api/client";

/** While `unsaved`, links to other pages and the browser ask before leaving. Render the result. */
export function useUnsavedChanges(unsaved: boolean): ReactNode {
  const router = useRouter();
  const [to, setTo] = useState<string | null>(null);
  useEffect(() => {
    if (!unsaved) return;
    const ask = (event: BeforeUnloadEvent) => event.preventDefault();
    const follow = (event: MouseEvent) => {
      const link = (event.target as Element | null)?.closest?.("a[href]") as HTMLAnchorElement | null;
      const elsewhere = event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || link?.target === "_blank";
      if (!link || elsewhere || link.origin !== window.location.origin || link.hash) return;
      event.preventDefault();
      event.stopPropagation();
      setTo(`${link.pathname.slice(BASE_PATH.length)}${link.search}`);
    };
    window.addEventListener("beforeunload", ask);
    // Before React sees the click.
    document.addEventListener("click", follow, true);
    return () => {
      window.removeEventListener("beforeunload", ask);
      document.removeEventListener("click", follow, true);
    };
  }, [unsaved]);
  return (
    <Dialog open={to !== null} onClose={() => setTo(null)} title="Leave without saving?" note="Your changes are not saved yet.">
      <div className="flex flex-wrap justify-end gap-2">
        <Button onClick={() => setTo(null)}>Stay here</Button>
        <Button look="danger" onClick={() => to !== null && router.push(to as Route)}>
          Leave
        </Button>
      </div>
    </Dialog>
  );
}
