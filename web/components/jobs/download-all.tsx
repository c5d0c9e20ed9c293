"use client";
import { type ReactNode, useState } from "react";
import { Code } from "@/components/ui/copy";
import { Dialog } from "@/components/ui/dialog";
import { useToast } from "@/components/ui/toast";
import { type ArchiveFile, zipFiles } from "@/lib/archive";
import { bytes } from "@/lib/format";
import { saveFile } from "@/lib/save";
import { readArtifact } from "./artifacts";

/** More is better fetched by a program that resumes after an interruption. */
const TOGETHER_MAX = 500 * 1000 * 1000;

interface DownloadAllProps {
  files: { name: string; digest: string; size: number }[];
  name: string; // of the archive, without its ending
  hint: string; // the command that fetches the same
  trigger: (save: () => void, pending: boolean) => ReactNode;
}

/** Saves all files as one archive, or a single file as it is. */
export function DownloadAll({ files, name, hint, trigger }: DownloadAllProps) {
  const toast = useToast();
  const [pending, setPending] = useState(false);
  const [large, setLarge] = useState(false);
  const size = files.reduce((sum, file) => sum + file.size, 0);
  const save = async () => {
    if (size > TOGETHER_MAX) return setLarge(true);
    setPending(true);
    try {
      const [only] = files;
      if (files.length === 1 && only) return saveFile(await readArtifact(only.digest), only.name);
      const archived: ArchiveFile[] = [];
      for (const file of files) archived.push({ name: file.name, input: await readArtifact(file.digest) });
      saveFile(await zipFiles(archived), `${name}.zip`);
    } catch (error) {
      toast.error(error);
    } finally {
      setPending(false);
    }
  };
  return (
    <>
      {trigger(() => void save(), pending)}
      <Dialog
        open={large}
        onClose={() => setLarge(false)}
        title="Too much to download at once"
        note={`The files are ${bytes(size)} in total. Download them one by one, or with a command that resumes after an interruption:`}
      >
        <Code label="Command to fetch the files" text={hint} />
      </Dialog>
    </>
  );
}
