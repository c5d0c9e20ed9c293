import type { NextConfig } from "next";

// The hub writes its own path prefix (or none) over this marker when it starts, so that one build serves under any
// prefix. A build for another server (Vercel) leaves it empty.
const prefix = process.env.BASE_PATH ?? "";
const hub = process.env.HUB_URL ?? "http://127.0.0.1:8000";
const dev = process.env.NODE_ENV === "development";

const config: NextConfig = {
  // Without compress: false the development proxy holds server-sent events back.
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
