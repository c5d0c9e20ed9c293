"use client";
import { Button } from "@/components/ui/button";
import { Page } from "@/components/ui/page";
import { Empty } from "@/components/ui/states";

/** For errors of the page itself. Refusals of the hub are shown where they occur. */
export default function PageError({ error, reset }: { error: Error; reset: () => void }) {
  // Drawing again would not load a missing script, as after a restart or update of the hub.
  const again = error.name === "ChunkLoadError" ? () => window.location.reload() : reset;
  return (
    <Page title="This page failed">
      <Empty title="This page ran into an error. Nothing was changed at the hub.">
        <p className="break-words font-mono text-sm">{error.message}</p>
        <Button className="justify-self-center" onClick={again}>
          Try again
        </Button>
      </Empty>
    </Page>
  );
}
