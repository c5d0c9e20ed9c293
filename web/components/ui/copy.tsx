"use client";
import { Check, Copy as CopyIcon } from "lucide-react";
import { useState } from "react";
import { classes } from "./classes";
import { useToast } from "./toast";

/** Pages over plain HTTP have no navigator.clipboard. */
async function copy(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  // A dialog would take the focus, and with it the selection, from elements outside.
  (document.activeElement?.closest("[role=dialog]") ?? document.body).append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (!copied) throw new Error("not copied");
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const toast = useToast();
  const [done, setDone] = useState(false);
  const copied = () => {
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  const failed = () =>
    toast.error({ code: "copy", detail: "The browser could not copy it. Select the text and copy it manually." });
  return (
    <button
      type="button"
      aria-label={done ? "Copied" : label}
      title={done ? "Copied" : label}
      className="inline-flex size-7 items-center justify-center rounded-md text-muted hover:bg-hover hover:text-ink"
      onClick={() => void copy(text).then(copied, failed)}
    >
      {done ? <Check /> : <CopyIcon />}
    </button>
  );
}

/** A text with a button that copies it. */
export function Code({ text, label, wrap = false }: { text: string; label: string; wrap?: boolean }) {
  return (
    <div className="flex items-start rounded-control border border-line bg-sunken">
      <pre
        role="region"
        tabIndex={0}
        aria-label={label}
        className={classes(
          "min-w-0 grow overflow-x-auto py-2.5 pl-3.5 font-mono text-sm",
          wrap && "whitespace-pre-wrap break-words",
        )}
      >
        {text}
      </pre>
      <div className="shrink-0 p-1.5">
        <Copy text={text} label={`Copy ${label.toLowerCase()}`} />
      </div>
    </div>
  );
}
