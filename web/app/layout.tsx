import type { Metadata, Viewport } from "next";
import { Providers } from "@/components/shell/providers";
import { Shell } from "@/components/shell/shell";
import "./globals.css";

export const metadata: Metadata = {
  title: "ComputePool",
  description: "Idle machines as one computer: see the mesh, run jobs, follow the credits.",
  referrer: "no-referrer",
};

export const viewport: Viewport = {
  width: "device-width",
  initialScale: 1,
};

const prefix = process.env.NEXT_PUBLIC_BASE_PATH ?? "";

export default function Layout({ children }: { children: React.ReactNode }) {
  return (
    // theme.js changes the element before React sees it.
    <html lang="en" suppressHydrationWarning>
      <head>
        {/* Before the first paint. */}
        <script src={`${prefix}/theme.js`} />
      </head>
      <body>
        <Providers>
          <Shell>{children}</Shell>
        </Providers>
      </body>
    </html>
  );
}
