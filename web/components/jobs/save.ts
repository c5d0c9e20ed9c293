// Files onto the visitor's disk, from bytes that are here.

/** A name that is a name and nothing more, whatever a job called its file. */
export function plainName(path: string): string {
  const last = path.split(/[/\\]/).filter(Boolean).at(-1) ?? "";
  return last.replace(/[\p{Cc}<>:"|?*]/gu, "_") || "file";
}

export function saveFile(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = plainName(name);
  link.click();
  // The browser reads it after this returns.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
