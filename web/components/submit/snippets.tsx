"use client";
import { Download } from "lucide-react";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { Code } from "@/components/ui/copy";
import { Segments } from "@/components/ui/segments";
import { saveFile } from "@/lib/save";
import type { Form } from "./form";
import type { Reading } from "./request";
import { asCli, asSdk } from "./snippet";

const WAYS = [
  { value: "cli", label: "Command line" },
  { value: "sdk", label: "Python" },
];

interface SnippetsProps {
  form: Form;
  reading: Reading;
  here: ReadonlySet<string>;
}

export function Snippets({ form, reading, here }: SnippetsProps) {
  const [way, setWay] = useState("cli");
  const cli = way === "cli";
  return (
    <Card title="Equivalent commands" aside={<Segments label="Language" options={WAYS} value={way} onChange={setWay} />}>
      <div className="grid grid-cols-1 gap-3">
        {form.kind === "script" && (
          <div className="flex flex-wrap items-center justify-between gap-2 text-muted text-sm">
            <span className="min-w-0">
              With the script as <code className="break-all font-mono text-ink">{form.file}</code> in your folder:
            </span>
            <Button small onClick={() => saveFile(new Blob([form.source], { type: "text/plain" }), form.file)}>
              <Download /> Save the script
            </Button>
          </div>
        )}
        <Code label={cli ? "Command line" : "Python"} text={cli ? asCli(form, reading, here) : asSdk(form, reading, here)} />
      </div>
    </Card>
  );
}
