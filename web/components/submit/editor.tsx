"use client";
// A text area for code, with line numbers and syntax colours. Tab indents; Escape, then Tab leaves it.
import { type KeyboardEvent, useId, useMemo, useRef, useState } from "react";
import { classes } from "@/components/ui/classes";
import { highlight, type Token } from "./highlight";

const COLOURS: Record<Token["kind"], string> = {
  plain: "",
  comment: "text-muted",
  string: "text-good",
  number: "text-info",
  keyword: "text-accent",
};
const STEP = "    ";

interface EditorProps {
  label: string;
  file: string;
  value: string;
  error?: string;
  onChange: (value: string) => void;
  onFile: (file: File) => void;
}

export function Editor({ label, file, value, error, onChange, onFile }: EditorProps) {
  const id = useId();
  const [over, setOver] = useState(false);
  const keys = useEditorKeys();
  const tokens = useMemo(() => highlight(value, file), [value, file]);
  const count = value.split("\n").length;
  return (
    <div className="grid gap-1">
      {/* biome-ignore lint/a11y/noStaticElementInteractions: there is a button that does the same */}
      <div
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={(event) => {
          event.preventDefault();
          setOver(false);
          const dropped = event.dataTransfer.files[0];
          if (dropped) onFile(dropped);
        }}
        className={classes(
          "max-h-[32rem] min-h-64 resize-y overflow-auto rounded-control border bg-sunken font-mono text-sm leading-6",
          "has-[textarea:focus-visible]:outline-2 has-[textarea:focus-visible]:outline-accent has-[textarea:focus-visible]:outline-offset-2",
          error ? "border-bad" : over ? "border-accent" : "border-line-strong",
        )}
      >
        <div className="grid min-h-full w-max min-w-full grid-cols-[auto_1fr]">
          <pre
            aria-hidden="true"
            className="sticky left-0 z-[1] select-none border-line border-r bg-sunken px-3 py-2 text-right text-muted"
          >
            {Array.from({ length: count }, (_, line) => line + 1).join("\n")}
          </pre>
          <div className="relative min-h-60">
            <pre aria-hidden="true" className="pointer-events-none px-3 py-2">
              {tokens.map((token, index) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: tokens have no other identity
                <span key={index} className={COLOURS[token.kind]}>
                  {token.text}
                </span>
              ))}
              {"\n"}
            </pre>
            <textarea
              aria-label={label}
              aria-describedby={error ? `${id}-error ${id}-keys` : `${id}-keys`}
              aria-invalid={error ? true : undefined}
              value={value}
              onChange={(event) => onChange(event.target.value)}
              onKeyDown={keys}
              wrap="off"
              spellCheck={false}
              autoCapitalize="off"
              autoCorrect="off"
              className="absolute inset-0 resize-none overflow-hidden whitespace-pre bg-transparent px-3 py-2 text-transparent caret-ink outline-none selection:bg-accent/25"
            />
          </div>
        </div>
      </div>
      {error && (
        <p id={`${id}-error`} className="text-bad text-sm">
          {error}
        </p>
      )}
      <p id={`${id}-keys`} className="text-muted text-sm">
        Tab indents; Esc, then Tab leaves the editor. Ctrl+Enter submits. You can drop a file here.
      </p>
    </div>
  );
}

/** execCommand is deprecated, but its changes can be undone with Ctrl+Z. */
function useEditorKeys() {
  const leaving = useRef(false);
  return (event: KeyboardEvent<HTMLTextAreaElement>) => {
    const area = event.currentTarget;
    if (event.key === "Escape") {
      leaving.current = true;
      return;
    }
    if (event.key === "Tab" && !leaving.current && !event.ctrlKey && !event.altKey && !event.metaKey) {
      event.preventDefault();
      indent(area, event.shiftKey);
    } else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      const line = area.value.slice(area.value.lastIndexOf("\n", area.selectionStart - 1) + 1, area.selectionStart);
      const [space = ""] = /^[ \t]*/.exec(line) ?? [];
      if (space || /:\s*$/.test(line)) {
        event.preventDefault();
        document.execCommand("insertText", false, `\n${space}${/:\s*$/.test(line) ? STEP : ""}`);
      }
    }
    if (event.key !== "Shift") leaving.current = false;
  };
}

function indent(area: HTMLTextAreaElement, back: boolean): void {
  const { selectionStart: from, selectionEnd: to, value } = area;
  const start = value.lastIndexOf("\n", from - 1) + 1;
  if (from === to && !back) {
    document.execCommand("insertText", false, STEP.slice((from - start) % STEP.length));
    return;
  }
  const found = value.indexOf("\n", Math.max(from, to - 1));
  const end = found === -1 ? value.length : found;
  const before = value.slice(start, end);
  const after = before.replace(/^/gm, back ? "" : STEP).replace(back ? /^ {1,4}|^\t/gm : /$^/, "");
  if (after === before) return;
  area.setSelectionRange(start, end);
  document.execCommand("insertText", false, after);
  area.setSelectionRange(from === to ? Math.max(start, from + after.length - before.length) : start, start + after.length);
}
