import { expect, it } from "vitest";
import { codeIn, ownAddress } from "@/lib/own-path";

const ORIGIN = "https://pool.example.com";

it.each(["/jobs?id=job_1#logs", "/credits", "/"])("goes on to %s", (next) => {
  expect(ownAddress(next, ORIGIN, "")).toBe(`${ORIGIN}${next}`);
  expect(ownAddress(next, ORIGIN, "/pool")).toBe(`${ORIGIN}/pool${next}`);
});

it.each([
  null,
  "",
  "jobs",
  "https://evil.example.com/",
  "//evil.example.com",
  "/\\evil.example.com",
  "\\\\evil.example.com",
  "/..//evil.example.com",
  "/\t/evil.example.com",
  "data:text/html,x",
  "/signin?next=/signin",
  "/api/v1/signout",
])("never goes to %j", (next) => {
  expect(ownAddress(next, ORIGIN, "")).toBe(`${ORIGIN}/`);
  expect(ownAddress(next, ORIGIN, "/pool")).toBe(`${ORIGIN}/pool/`);
});

it("never leaves the prefix that a proxy shows the hub under", () => {
  expect(ownAddress("/../other", ORIGIN, "/pool")).toBe(`${ORIGIN}/pool/`);
});

it("finds the code in a pasted link", () => {
  expect(codeIn(` ${ORIGIN}/signin/?next=%2F&code=a%2Bb#x `)).toBe("a+b");
  expect(codeIn(" ABCD-EFGH ")).toBe("ABCD-EFGH");
  expect(codeIn("/signin?code=%E0%A4%A")).toBe("/signin?code=%E0%A4%A");
});
