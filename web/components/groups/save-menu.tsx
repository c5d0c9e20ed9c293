"use client";
// A group's files as one archive, or its items as CSV or JSON.
import { Download } from "lucide-react";
import { useRef, useState } from "react";
import { readArtifact } from "@/components/jobs/artifacts";
import { Button } from "@/components/ui/button";
import { Code } from "@/components/ui/copy";
import { Dialog } from "@/components/ui/dialog";
import { MENU_ITEM, Menu } from "@/components/ui/menu";
import { Progress } from "@/components/ui/progress";
import { useToast } from "@/components/ui/toast";
import type { Schemas } from "@/lib/api/client";
import { type ArchiveFile, zipFiles } from "@/lib/archive";
import { bytes, count } from "@/lib/format";
import { saveFile } from "@/lib/save";
import { asCsv, asJson } from "./export";
import { allItems, type GroupItem } from "./use-items";

const ITEMS_MAX = 200_000;
/** More is better fetched by a program that resumes after an interruption. */
const BYTES_MAX = 1_000_000_000;
const FILES_MAX = 5000;

interface Progressing {
  text: string;
  share: number | null;
}

export function SaveMenu({ group }: { group: Schemas["GroupView"] }) {
  const toast = useToast();
  const [progress, setProgress] = useState<Progressing | null>(null);
  const [large, setLarge] = useState<string | null>(null);
  const stop = useRef<AbortController | null>(null);

  const work = async (make: (signal: AbortSignal) => Promise<void>) => {
    const abort = new AbortController();
    stop.current = abort;
    try {
      await make(abort.signal);
    } catch (error) {
      if (!abort.signal.aborted) toast.error(error);
    } finally {
      setProgress(null);
    }
  };
  const list = (signal: AbortSignal, which: "all" | "results") => {
    const onProgress = (found: number) =>
      setProgress({ text: `${count(found)} items read`, share: group.total ? found / group.total : null });
    onProgress(0);
    return allItems(group.id, which, { onProgress, signal, most: ITEMS_MAX });
  };
  const saveList = (ending: "csv" | "json") =>
    work(async (signal) => {
      const items = await list(signal, "all");
      const text = ending === "csv" ? asCsv(items) : asJson(items);
      saveFile(new Blob([text], { type: ending === "csv" ? "text/csv" : "application/json" }), `${group.name}.${ending}`);
    });
  const saveFiles = () =>
    work(async (signal) => {
      const items = await list(signal, "results");
      const files = filesOf(items);
      const size = files.reduce((sum, file) => sum + file.size, 0);
      if (files.length > FILES_MAX || size > BYTES_MAX) {
        setLarge(`${count(files.length)} files with ${bytes(size)}`);
        return;
      }
      const archived: ArchiveFile[] = [{ name: "results.json", input: new Blob([asJson(items)]) }];
      let done = 0;
      for (const file of files) {
        setProgress({ text: file.name, share: size > 0 ? done / size : null });
        archived.push({ name: file.name, input: await readArtifact(file.digest, { signal }) });
        done += file.size;
      }
      saveFile(await zipFiles(archived), `${group.name}.zip`);
    });

  return (
    <>
      <Menu
        button={(props) => (
          <Button {...props} disabled={progress !== null}>
            <Download /> Download
          </Button>
        )}
      >
        <button type="button" className={MENU_ITEM} onClick={() => void saveFiles()}>
          All files and results (ZIP)
        </button>
        <button type="button" className={MENU_ITEM} onClick={() => void saveList("csv")}>
          List of items (CSV)
        </button>
        <button type="button" className={MENU_ITEM} onClick={() => void saveList("json")}>
          List of items (JSON)
        </button>
      </Menu>
      <Dialog open={progress !== null} onClose={() => stop.current?.abort()} title="Preparing the download" note={progress?.text}>
        <Progress value={progress?.share} label="Downloaded" />
        <Button className="justify-self-end" onClick={() => stop.current?.abort()}>
          Stop
        </Button>
      </Dialog>
      <Dialog
        open={large !== null}
        onClose={() => setLarge(null)}
        title="Too much to download at once"
        note={`There are ${large}. The dashboard downloads up to ${count(FILES_MAX)} files and ${bytes(BYTES_MAX)} at once. This command fetches any number, resumes after an interruption, and verifies every file:`}
      >
        <Code label="Command to fetch all results" text={`pool group fetch ${group.id} ./results`} />
      </Dialog>
    </>
  );
}

/** A folder for each item. Large results are files, too. */
function filesOf(items: GroupItem[]): { name: string; digest: string; size: number }[] {
  return items.flatMap((item) => {
    const folder = (item.key ?? item.job_id ?? "item").replaceAll("/", "_");
    const outputs = item.outputs.map((file) => ({ ...file, name: `${folder}/${file.name}` }));
    const large = item.result_artifact ? [{ name: `${folder}/result.json`, digest: item.result_artifact, size: 0 }] : [];
    return [...outputs, ...large];
  });
}
