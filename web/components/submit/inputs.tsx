"use client";
// Files for the job, uploaded while the rest of the form is filled in.
import { FilePlus2, RotateCcw, X } from "lucide-react";
import { useRef, useState } from "react";
import { Button, IconButton } from "@/components/ui/button";
import { classes } from "@/components/ui/classes";
import { Progress } from "@/components/ui/progress";
import { asProblem } from "@/lib/api/problem";
import { bytes } from "@/lib/format";
import type { InputFile } from "./form";
import { type Step, upload } from "./upload";

interface Upload {
  file: File;
  step: Step;
  error?: unknown;
  abort: AbortController;
}

/** Uploads in progress; a finished one is passed to `onUploaded`. */
export function useUploads(onUploaded: (input: InputFile) => void) {
  const [uploads, setUploads] = useState<Upload[]>([]);
  const latest = useRef(onUploaded);
  latest.current = onUploaded;
  const drop = (name: string) => setUploads((before) => before.filter((one) => one.file.name !== name));
  const add = (file: File) => {
    uploads.find((one) => one.file.name === file.name)?.abort.abort();
    const abort = new AbortController();
    const begun: Upload = { file, abort, step: { doing: "reading", done: 0, of: file.size } };
    const change = (fields: Partial<Upload>) =>
      setUploads((before) => before.map((one) => (one.abort === abort ? { ...one, ...fields } : one)));
    setUploads((before) => [...before.filter((one) => one.file.name !== file.name), begun]);
    upload(file, (step) => change({ step }), abort.signal).then(
      (input) => {
        drop(file.name);
        latest.current(input);
      },
      (error: unknown) => {
        if (!abort.signal.aborted) change({ error });
      },
    );
  };
  const stop = (one: Upload) => {
    one.abort.abort();
    drop(one.file.name);
  };
  return { uploads, add, stop };
}

interface InputsProps {
  inputs: InputFile[];
  uploads: Upload[];
  error?: string;
  add: (file: File) => void;
  stop: (upload: Upload) => void;
  remove: (name: string) => void;
}

export function Inputs({ inputs, uploads, error, add, stop, remove }: InputsProps) {
  const picker = useRef<HTMLInputElement>(null);
  const [over, setOver] = useState(false);
  const take = (files: FileList | null) => {
    for (const file of files ?? []) add(file);
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: there is a button that does the same
    <div
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        take(event.dataTransfer.files);
      }}
      className={classes(
        "grid gap-3 rounded-control border border-dashed p-4",
        over ? "border-accent bg-accent-soft" : "border-line-strong/60",
      )}
    >
      <div className="flex flex-wrap items-center gap-3">
        <Button small onClick={() => picker.current?.click()}>
          <FilePlus2 /> Add files
        </Button>
        <span className="text-muted text-sm">or drop them here. They are in the job's folder, with the same names.</span>
        <input
          ref={picker}
          type="file"
          multiple
          aria-label="Files to send with the job"
          className="hidden"
          onChange={(event) => {
            take(event.target.files);
            event.target.value = "";
          }}
        />
      </div>
      {inputs.length + uploads.length > 0 && (
        <ul className="grid gap-2">
          {inputs.map((input) => (
            <li key={input.name} className="flex items-center gap-3">
              <span className="min-w-0 flex-1 truncate font-mono text-sm">{input.name}</span>
              <span className="num text-muted text-sm">{bytes(input.size)}</span>
              <IconButton label={`Remove ${input.name}`} onClick={() => remove(input.name)}>
                <X />
              </IconButton>
            </li>
          ))}
          {uploads.map((one) => (
            <Sending key={one.file.name} upload={one} stop={() => stop(one)} again={() => add(one.file)} />
          ))}
        </ul>
      )}
      {error && <p className="text-bad text-sm">{error}</p>}
    </div>
  );
}

function Sending({ upload: { file, step, error }, stop, again }: { upload: Upload; stop: () => void; again: () => void }) {
  return (
    <li className="flex items-center gap-3">
      <div className="min-w-0 flex-1">
        <div className="flex justify-between gap-3 text-sm">
          <span className="truncate font-mono">{file.name}</span>
          <span className="num whitespace-nowrap text-muted">
            {step.doing} {bytes(step.done)} of {bytes(step.of)}
          </span>
        </div>
        {error ? (
          <p role="alert" className="text-bad text-sm">
            {asProblem(error).detail}
          </p>
        ) : (
          <Progress value={step.of > 0 ? step.done / step.of : 1} label={`Upload of ${file.name}`} />
        )}
      </div>
      {error !== undefined && (
        <IconButton label={`Send ${file.name} again`} onClick={again}>
          <RotateCcw />
        </IconButton>
      )}
      <IconButton label={`Stop sending ${file.name}`} onClick={stop}>
        <X />
      </IconButton>
    </li>
  );
}
