import { describe, expect, it } from "vitest";
import { writeValue } from "@/components/jobs/wire-value";
import { highlight } from "@/components/submit/highlight";
import { eventLabel } from "@/lib/event-labels";
import { capitalize, humanize } from "@/lib/labels";

it("puts the API's codes into words", () => {
  expect([eventLabel("job.failed"), eventLabel("node.penalised"), eventLabel("hub.some_new_event")]).toEqual([
    "job failed",
    "result proven wrong",
    "hub some new event",
  ]);
  expect([humanize("not_polling"), humanize("No node has a card."), capitalize("not polling")]).toEqual([
    "not polling",
    "No node has a card.",
    "Not polling",
  ]);
});

describe("highlight", () => {
  const source = `"""it's # no comment"""\nx = f'a {y} b'  # "c"\nif None: return 1.5e3\n`;
  const kinds = (kind: string) =>
    highlight(source, "job.py")
      .filter((token) => token.kind === kind)
      .map((token) => token.text);

  it("colours Python, and loses no character", () => {
    expect(kinds("string")).toEqual([`"""it's # no comment"""`, "f'a ", " b'"]);
    expect(kinds("comment")).toEqual(['# "c"']);
    expect(kinds("keyword")).toEqual(["if", "None", "return"]);
    expect(kinds("number")).toEqual(["1.5e3"]);
    for (const text of [source, "'open", '"""open', "def f(:\n\t<b>&amp;", ""]) {
      expect(
        highlight(text, "job.py")
          .map((token) => token.text)
          .join(""),
      ).toBe(text);
    }
  });

  it("leaves other files and very long ones plain", () => {
    expect(highlight(source, "job.sh")).toEqual([{ kind: "plain", text: source }]);
    expect(highlight("1 ".repeat(30_000), "job.py")).toHaveLength(1);
  });
});

it("writes values as Python does, and survives malformed ones", () => {
  expect(writeValue('{"a": [1, true, null], "b": {"$tuple": ["x"]}}')?.text).toBe("{'a': [1, True, None], 'b': ('x',)}");
  expect(writeValue('{"$tuple": 3}')?.text).toBe("<tuple>");
  expect(writeValue("[".repeat(100) + "]".repeat(100))?.text).toContain("…");
  expect(writeValue("not json")).toBeNull();
});
