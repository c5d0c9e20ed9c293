// Many files as one ZIP archive, without compression: results are mostly compressed already.
import { downloadZip } from "client-zip";
import { safeName } from "./save";

export interface ArchiveFile {
  name: string;
  // Fetched by the caller: a stream that fails here would reject with the browser's message instead of the hub's.
  input: Blob;
}

export function zipFiles(files: ArchiveFile[]): Promise<Blob> {
  return downloadZip(withUniqueNames(files)).blob();
}

/** Names that every system can unpack: inside the folder, and unique. */
export function withUniqueNames(files: ArchiveFile[]): ArchiveFile[] {
  const taken = new Set<string>();
  return files.map((file) => {
    const wanted = safePath(file.name);
    let name = wanted;
    for (let copy = 2; taken.has(name); copy += 1) name = wanted.replace(/(\.[^./]*)?$/, ` (${copy})$1`);
    taken.add(name);
    return { ...file, name };
  });
}

function safePath(path: string): string {
  const steps = path.split(/[/\\]/).filter((step) => step && step !== "." && step !== "..");
  return steps.map(safeName).join("/") || "file";
}
