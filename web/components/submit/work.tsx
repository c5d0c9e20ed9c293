"use client";
import { FileUp } from "lucide-react";
import { useRef } from "react";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { TextArea, TextField } from "@/components/ui/field";
import { Segments } from "@/components/ui/segments";
import { useToast } from "@/components/ui/toast";
import { splitWords } from "@/lib/shell-words";
import { Editor } from "./editor";
import type { Form } from "./form";
import type { FieldsProps } from "./sections";

const KINDS = [
  { value: "script", label: "Script" },
  { value: "command", label: "Command" },
];
const SOURCE_MAX = 256 * 1024;

export function Work({ form, errors, change }: FieldsProps) {
  return (
    <Card
      title="Work"
      aside={
        <Segments
          label="Kind of work"
          options={KINDS}
          value={form.kind}
          onChange={(kind) => change({ kind: kind as Form["kind"] })}
        />
      }
    >
      {form.kind === "script" ? (
        <Script form={form} errors={errors} change={change} />
      ) : (
        <Command form={form} errors={errors} change={change} />
      )}
    </Card>
  );
}

function Script({ form, errors, change }: FieldsProps) {
  const picker = useRef<HTMLInputElement>(null);
  const load = useScriptFile(change);
  return (
    <div className="grid gap-4">
      <div className="flex flex-wrap items-end gap-3">
        <TextField
          label="File name"
          className="min-w-40 flex-1"
          value={form.file}
          error={errors.file}
          spellCheck={false}
          onChange={(event) => change({ file: event.target.value.replace(/[/\\]/g, "") })}
        />
        <Button onClick={() => picker.current?.click()}>
          <FileUp /> Open a file
        </Button>
        <input
          ref={picker}
          type="file"
          aria-label="Script to open"
          className="hidden"
          onChange={(event) => {
            const [file] = event.target.files ?? [];
            if (file) void load(file);
            event.target.value = "";
          }}
        />
      </div>
      <Editor
        label="Script"
        file={form.file}
        value={form.source}
        error={errors.source}
        onChange={(source) => change({ source })}
        onFile={(file) => void load(file)}
      />
      <TextField
        label="Arguments"
        placeholder="--epochs 3"
        hint={<Words line={form.args} nothing="Quoted as in a shell." />}
        error={errors.args}
        value={form.args}
        spellCheck={false}
        autoComplete="off"
        onChange={(event) => change({ args: event.target.value })}
      />
    </div>
  );
}

function useScriptFile(change: FieldsProps["change"]) {
  const toast = useToast();
  return async (file: File) => {
    if (file.size > SOURCE_MAX) {
      toast.error(badRequest(`${file.name} is longer than 256 KiB. Add it as a file, and run it with a command.`));
      return;
    }
    try {
      const source = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      change({ source: source.replaceAll("\r\n", "\n"), file: file.name });
    } catch {
      toast.error(badRequest(`${file.name} is not text. Add it as a file, and run it with a command.`));
    }
  };
}

function badRequest(detail: string) {
  return { code: "bad_request", detail };
}

function Command({ form, errors, change }: FieldsProps) {
  return (
    <TextArea
      label="Command"
      rows={4}
      placeholder="ffmpeg -i in.mp4 outputs/out.webm"
      hint={<Words line={form.command} nothing="A program and its arguments, quoted as in a shell. It runs without a shell." />}
      error={errors.command}
      value={form.command}
      spellCheck={false}
      onChange={(event) => change({ command: event.target.value })}
    />
  );
}

/** Shows how the line is split. */
function Words({ line, nothing }: { line: string; nothing: string }) {
  const words = splitWords(line) ?? [];
  if (words.length === 0) return <>{nothing}</>;
  return (
    <span className="flex flex-wrap gap-1">
      {words.map((word, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: words have no other identity
        <code key={index} className="max-w-full break-all rounded bg-sunken px-1.5 font-mono">
          {word || "''"}
        </code>
      ))}
    </span>
  );
}
