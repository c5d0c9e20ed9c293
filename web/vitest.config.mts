// The dashboard's rules without a browser: what needs one is in tests/web.
import { defineConfig } from "vitest/config";

export default defineConfig({
  resolve: { alias: { "@": import.meta.dirname } },
  test: { include: ["tests/**/*.test.ts"], environment: "node", pool: "threads", isolate: false },
});
