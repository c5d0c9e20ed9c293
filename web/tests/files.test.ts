import { createHash } from "node:crypto";
import { afterEach, expect, it, vi } from "vitest";
import { csvRows, pictureType } from "@/components/jobs/artifacts";
import { fileDigest } from "@/components/submit/sha256";
import { withUniqueNames, zipFiles } from "@/lib/archive";
import { csv, safeFileName } from "@/lib/save";

afterEach(() => vi.unstubAllGlobals());

it.each([
  ["with WebCrypto", { subtle: crypto.subtle }],
  ["over plain HTTP", {}],
])("digests a file %s", async (_, browsers) => {
  const bytes = new Uint8Array(5 * 1024 * 1024 + 5).map((_, index) => index * 7);
  vi.stubGlobal("crypto", browsers);
  const progress: number[] = [];
  const digest = await fileDigest(new Blob([bytes]), (done) => progress.push(done), new AbortController().signal);
  expect(digest).toBe(createHash("sha256").update(bytes).digest("hex"));
  expect(progress.at(-1) ?? bytes.length).toBe(bytes.length);
  expect(await fileDigest(new Blob([]), () => {}, new AbortController().signal)).toMatch(/^e3b0c442/);
});

it("stops digesting when nobody wants it any more", async () => {
  vi.stubGlobal("crypto", {});
  await expect(fileDigest(new Blob(["x"]), () => {}, AbortSignal.abort())).rejects.toThrow();
});

it("archives names that stay inside the folder, and no two alike", () => {
  const names = ["../../etc/passwd", "C:\\x", "a.txt", "a.txt", "a (2).txt", "a.txt", "..", 'q"?.csv', "dir.d/a", "dir.d/a"];
  expect(withUniqueNames(names.map((name) => ({ name, input: new Blob() }))).map((file) => file.name)).toEqual([
    "etc/passwd",
    "C_/x",
    "a.txt",
    "a (2).txt",
    "a (2) (2).txt",
    "a (3).txt",
    "file",
    "q__.csv",
    "dir.d/a",
    "dir.d/a (2)",
  ]);
});

it("makes a ZIP archive", async () => {
  const zip = new Uint8Array(await (await zipFiles([{ name: "ü.txt", input: new Blob(["hello"]) }])).arrayBuffer());
  expect([...zip.subarray(0, 4)]).toEqual([0x50, 0x4b, 3, 4]);
  expect(new TextDecoder().decode(zip)).toContain("ü.txt");
});

it("saves strangers' text as text: no formulas, no folders", () => {
  expect(csv([["=cmd()", "a,b", 'say "x"', -1, null]])).toBe(`'=cmd(),"a,b","say ""x""",-1,\r\n`);
  expect(csv([["＝cmd()", "\n=cmd()"]])).toBe(`'＝cmd(),"'\n=cmd()"\r\n`);
  expect(safeFileName("photo\u202egpj.exe\x9b")).toBe("photo_gpj.exe_");
  expect([safeFileName("../../x.sh"), safeFileName("a<b>.txt"), safeFileName("/")]).toEqual(["x.sh", "a_b_.txt", "file"]);
});

it("knows pictures by how they begin, and SVG is none", () => {
  const bytes = (text: string) => Uint8Array.from(text, (char) => char.charCodeAt(0));
  expect(pictureType(bytes("\x89PNG\r\n\x1a\n…"))).toBe("image/png");
  expect(pictureType(bytes("RIFF....WEBP"))).toBe("image/webp");
  expect(pictureType(bytes("<svg onload='alert(1)'>"))).toBeNull();
});

it("reads the first rows of a table", () => {
  const text = 'name,note\r\n"Ann, of course","said ""hi"""\nBob,\n';
  expect(csvRows(text, { rows: 10, columns: 5 })).toEqual([
    ["name", "note"],
    ["Ann, of course", 'said "hi"'],
    ["Bob", ""],
  ]);
  expect(csvRows(text, { rows: 1, columns: 1 })).toEqual([["name"]]);
  expect(csvRows("no table", { rows: 10, columns: 5 })).toBeNull();
});
