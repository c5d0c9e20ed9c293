// Colours comments, strings, numbers and keywords of Python.
import python from "highlight.js/lib/languages/python";
import { createLowlight } from "lowlight";

export interface Token {
  kind: "plain" | "comment" | "string" | "number" | "keyword";
  text: string;
}

type Tree = ReturnType<typeof lowlight.highlight>["children"];

const lowlight = createLowlight({ python });
/** Longer sources stay plain, or typing would be slow. */
const LENGTH_MAX = 40_000;
const KINDS: Record<string, Token["kind"]> = {
  "hljs-comment": "comment",
  "hljs-string": "string",
  "hljs-subst": "plain", // what an f-string computes
  "hljs-number": "number",
  "hljs-keyword": "keyword",
  "hljs-literal": "keyword",
};

export function highlight(source: string, file: string): Token[] {
  if (source.length > LENGTH_MAX || !file.endsWith(".py")) return [{ kind: "plain", text: source }];
  return tokensOf(lowlight.highlight("python", source).children, "plain");
}

function tokensOf(tree: Tree, kind: Token["kind"]): Token[] {
  return tree.flatMap((node) => {
    if (node.type === "text") return [{ kind, text: node.value }];
    if (node.type !== "element") return [];
    const [name] = node.properties.className as string[];
    return tokensOf(node.children as Tree, KINDS[name ?? ""] ?? kind);
  });
}
