// Light colouring of Python: comments, texts, numbers and the words of the language. No more, so that it is never wrong.

export interface Piece {
  kind: "plain" | "comment" | "text" | "number" | "word";
  text: string;
}

const WORDS =
  "False|None|True|and|as|assert|async|await|break|case|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|match|nonlocal|not|or|pass|raise|return|try|while|with|yield";
const TOKEN = new RegExp(
  [
    "(?<comment>#[^\\n]*)",
    "(?<text>(?:\\b[rbfuRBFU]{1,2})?(?:\"\"\"[^]*?(?:\"\"\"|$)|'''[^]*?(?:'''|$)|\"(?:\\\\.|[^\"\\\\\\n])*\"?|'(?:\\\\.|[^'\\\\\\n])*'?))",
    "(?<number>\\b\\d[\\d_]*(?:\\.\\d+)?(?:e[+-]?\\d+)?\\b)",
    `(?<word>\\b(?:${WORDS})\\b)`,
  ].join("|"),
  "g",
);
/** Longer ones are shown plain: colouring every keystroke would be felt. */
const LENGTH_MAX = 40_000;

export function highlight(source: string, file: string): Piece[] {
  if (source.length > LENGTH_MAX || !file.endsWith(".py")) return [{ kind: "plain", text: source }];
  const pieces: Piece[] = [];
  let at = 0;
  for (const match of source.matchAll(TOKEN)) {
    if (match.index > at) pieces.push({ kind: "plain", text: source.slice(at, match.index) });
    const [kind] = Object.entries(match.groups ?? {}).find(([, text]) => text !== undefined) ?? ["plain"];
    pieces.push({ kind: kind as Piece["kind"], text: match[0] });
    at = match.index + match[0].length;
  }
  pieces.push({ kind: "plain", text: source.slice(at) });
  return pieces;
}
