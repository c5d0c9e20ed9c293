// Splits and quotes command lines as a shell does.

/** The words of a line; null if a quote is not closed. Without variables and globs: a node starts programs without a shell. */
export function splitWords(line: string): string[] | null {
  const words: string[] = [];
  let word = "";
  let begun = false;
  for (let at = 0; at < line.length; at += 1) {
    const char = line[at] as string;
    if (char === "'" || char === '"') {
      const end = closingQuote(line, at);
      if (end === -1) return null;
      const inside = line.slice(at + 1, end);
      word += char === "'" ? inside : inside.replace(/\\(?:(["\\$`])|\n)/g, "$1");
      begun = true;
      at = end;
    } else if (char === "\\" && at + 1 < line.length) {
      at += 1;
      if (line[at] === "\n") continue; // the line goes on
      word += line[at];
      begun = true;
    } else if (/\s/.test(char)) {
      if (begun) words.push(word);
      word = "";
      begun = false;
    } else {
      word += char;
      begun = true;
    }
  }
  if (begun) words.push(word);
  return words;
}

function closingQuote(line: string, open: number): number {
  const quote = line[open];
  for (let at = open + 1; at < line.length; at += 1) {
    if (quote === '"' && line[at] === "\\") at += 1;
    else if (line[at] === quote) return at;
  }
  return -1;
}

export function quoteWord(word: string): string {
  if (/^[A-Za-z0-9_@%+=:,./-]+$/.test(word)) return word;
  return `'${word.replaceAll("'", "'\\''")}'`;
}

export function joinWords(words: string[]): string {
  return words.map(quoteWord).join(" ");
}
