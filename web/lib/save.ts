// Files onto the visitor's disk, from what is here: nobody is asked.

/** A name that is a name and nothing more, whatever a job called its file. */
export function safeFileName(path: string): string {
  return safeName(path.split(/[/\\]/).filter(Boolean).at(-1) ?? "") || "file";
}

/** Without what some system refuses, and what shows a name as another one. */
export function safeName(name: string): string {
  return name.replace(/[\p{Cc}\p{Bidi_C}<>:"|?*]/gu, "_");
}

export function saveFile(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = safeFileName(name);
  link.click();
  // The browser reads it after this returns.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

export function saveText(name: string, text: string, type: string): void {
  saveFile(new Blob([text], { type }), name);
}

const FORMULA = /^[=+\-@\t\r\n＝＋－＠]/;

/** For spreadsheets. A cell that would be read as a formula is told to be text: its words may be a stranger's. */
export function csv(rows: (string | number | null | undefined)[][]): string {
  const cell = (value: string | number | null | undefined) => {
    const text = String(value ?? "");
    const plain = typeof value === "string" && FORMULA.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  };
  return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}
