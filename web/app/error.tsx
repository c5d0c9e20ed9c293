"use client";
import { Button } from "@/components/ui/button";
import { Page } from "@/components/ui/page";
import { Empty } from "@/components/ui/states";

/** A fault of this page itself. What the hub refuses is shown where it was asked. */
export default function PageError({ error, reset }: { error: Error; reset: () => void }) {
  // A part of the program that did not come, as of a hub that restarts or was updated, is not asked for again by drawing anew.
  const again = error.name === "ChunkLoadError" ? () => window.location.reload() : reset;
  return (
    <Page title="This page failed">
      <Empty title="This page ran into an error. Nothing changed at the hub.">
        <p className="break-words font-mono text-sm">{error.message}</p>
        <Button className="justify-self-center" onClick={again}>
          Try again
        </Button>
      </Empty>
    </Page>
  );
}
