import type { NextConfig } from "next";

// At its start, the hub replaces this marker by its own path prefix, so that one build serves under any prefix. A build for
// another server leaves it empty.
const prefix = process.env.BASE_PATH ?? "";
const hub = process.env.HUB_URL ?? "http://127.0.0.1:8000";
const dev = process.env.NODE_ENV === "development";

const config: NextConfig = {
  // With compression, the development proxy would delay server-sent events.
  ...(dev
    ? {
        compress: false,
        skipTrailingSlashRedirect: true,
        rewrites: async () => [{ source: "/api/:path*", destination: `${hub}/api/:path*` }],
      }
    : { output: "export" as const }),
  basePath: prefix,
  env: { NEXT_PUBLIC_BASE_PATH: prefix },
  trailingSlash: true,
  images: { unoptimized: true },
  typedRoutes: true,
  reactStrictMode: true,
  devIndicators: false,
  turbopack: { resolveAlias: { "react-remove-scroll": "./lib/scroll-lock.tsx" } },
  // `npm run types` checks them, in `make check`.
  typescript: { ignoreBuildErrors: true },
};

export default config;
