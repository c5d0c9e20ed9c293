// What a person has filled in, as typed. An empty field leaves the decision to the hub.
import type { Schemas } from "@/lib/api/client";
import { apiName, NAMES, type TextName } from "./fields";

export type InputFile = Schemas["InputFile"];

export interface Form extends Record<TextName, string> {
  kind: "script" | "command";
  file: string; // the script's name, without a folder
  source: string;
  args: string; // of the script, quoted as in a shell
  command: string;
  inputs: InputFile[];
  checkpoints: boolean;
  moves: boolean;
  sealTo: string;
}

export type FieldName = keyof Form;
export type Errors = Partial<Record<FieldName, string>>;

export const EMPTY: Form = {
  ...(Object.fromEntries(NAMES.map((name) => [name, ""])) as Record<TextName, string>),
  kind: "script",
  file: "job.py",
  source: "",
  args: "",
  command: "",
  inputs: [],
  checkpoints: false,
  moves: false,
  sealTo: "",
};

const OTHER_NAMES: Record<string, FieldName> = { confidence: "verify", group_id: "group", seal_to: "sealTo", items: "slices" };

/** The field that an error about `spec.needs.tags.0` belongs to; null: none. */
export function fieldOf(path: string | null | undefined, form: Form): FieldName | null {
  const word = (path ?? "").split(".").find((part) => part !== "spec" && part !== "needs") ?? "";
  if (word === "argv") return form.kind === "command" ? "command" : "args";
  const name = NAMES.find((known) => apiName(known)?.[1] === word) ?? OTHER_NAMES[word] ?? word;
  return name in EMPTY ? (name as FieldName) : null;
}
