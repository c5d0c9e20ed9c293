// Saves data as files on the visitor's disk.

/** A name without folders, whatever a job called its file. */
export function safeFileName(path: string): string {
  return safeName(path.split(/[/\\]/).filter(Boolean).at(-1) ?? "") || "file";
}

/** Without characters that some system refuses, or that disguise a name. */
export function safeName(name: string): string {
  return name.replace(/[\p{Cc}\p{Bidi_C}<>:"|?*]/gu, "_");
}

export function saveFile(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = safeFileName(name);
  link.click();
  // The browser reads it later.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

export function saveText(name: string, text: string, type: string): void {
  saveFile(new Blob([text], { type }), name);
}

const FORMULA = /^[=+\-@\t\r\n＝＋－＠]/;

/** For spreadsheets. A text that would be read as a formula is escaped: a stranger may have written it. */
export function csv(rows: (string | number | null | undefined)[][]): string {
  const cell = (value: string | number | null | undefined) => {
    const text = String(value ?? "");
    const plain = typeof value === "string" && FORMULA.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  };
  return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}
