"use client";
import { Menu, Plus } from "lucide-react";
import { usePathname } from "next/navigation";
import { Dialog } from "radix-ui";
import { type ReactNode, Suspense, useEffect, useState } from "react";
import { ButtonLink, IconButton } from "@/components/ui/button";
import { classes } from "@/components/ui/classes";
import { Link } from "@/components/ui/link";
import { Failure, Skeleton } from "@/components/ui/states";
import { useIsPageLoading, usePrefetchedPages } from "@/lib/offline-pages";
import { useSession } from "@/lib/session";
import { AccountMenu } from "./account-menu";
import { ConnectionMark } from "./connection-mark";
import { HubAwayNotice } from "./hub-away-notice";
import { Mark } from "./mark";
import { isCurrent, NAVIGATION, PATHS } from "./navigation";
import { ThemeSwitch } from "./theme-switch";

/** Everything around a page. Without a session, there is only the sign-in page. */
export function Shell({ children }: { children: ReactNode }) {
  const { account, error } = useSession();
  const pathname = usePathname();
  const open = pathname.startsWith("/signin");
  usePrefetchedPages(PATHS, Boolean(account));
  // What reads the address is drawn in the browser alone.
  const page = <Suspense>{children}</Suspense>;
  if (open) return <main id="main">{page}</main>;
  if (account === null) return <RedirectToSignIn />;
  return (
    <div className="lg:grid lg:grid-cols-[14rem_minmax(0,1fr)]">
      <a href="#main" className="sr-only z-50 bg-surface px-4 py-2 focus:not-sr-only focus:fixed focus:top-2 focus:left-2">
        Skip to the page
      </a>
      <PageLoading />
      <Side />
      <TopBar />
      <main id="main" tabIndex={-1} className="min-w-0 outline-none">
        <HubAwayNotice />
        {account ? page : error ? <HubAway /> : <PageSkeleton />}
      </main>
    </div>
  );
}

/** Acknowledges a click while the hub is slow or hangs. */
function PageLoading() {
  if (!useIsPageLoading()) return null;
  return (
    <div role="progressbar" aria-label="Loading the page" className="fixed inset-x-0 top-0 z-50 h-1 animate-pulse bg-accent" />
  );
}

function RedirectToSignIn() {
  useEffect(() => {
    const here = window.location.pathname + window.location.search;
    const base = process.env.NEXT_PUBLIC_BASE_PATH ?? "";
    const next = here.startsWith(base) ? here.slice(base.length) : here;
    window.location.replace(`${base}/signin/${next && next !== "/" ? `?next=${encodeURIComponent(next)}` : ""}`);
  }, []);
  return <PageSkeleton />;
}

function HubAway() {
  const { error, retry } = useSession();
  return (
    <div className="pt-16">
      <Failure error={error} retry={retry} />
    </div>
  );
}

function PageSkeleton() {
  return (
    <div role="status" aria-label="Loading" className="grid gap-5 px-4 py-5 sm:px-6 lg:py-7">
      <Skeleton className="h-8 w-48" />
      <Skeleton className="h-24" />
      <Skeleton className="h-96" />
    </div>
  );
}

function Side() {
  return (
    <aside className="sticky top-0 hidden h-dvh flex-col gap-5 border-line border-r bg-surface p-4 lg:flex">
      <Brand />
      <SubmitLink />
      <NavigationList />
      <div className="mt-auto grid gap-3">
        <ConnectionMark />
        <div className="flex items-center justify-between gap-2">
          <AccountMenu />
          <ThemeSwitch />
        </div>
      </div>
    </aside>
  );
}

function TopBar() {
  const [open, setOpen] = useState(false);
  const pathname = usePathname();
  // biome-ignore lint/correctness/useExhaustiveDependencies: another page closes the drawer
  useEffect(() => setOpen(false), [pathname]);
  return (
    <header className="sticky top-0 z-20 flex items-center gap-2 border-line border-b bg-surface px-3 py-2 lg:hidden">
      <Dialog.Root open={open} onOpenChange={setOpen}>
        <Dialog.Trigger asChild>
          <IconButton label="Menu">
            <Menu size={20} />
          </IconButton>
        </Dialog.Trigger>
        <Dialog.Portal>
          <Dialog.Overlay className="overlay" />
          <Dialog.Content
            aria-describedby={undefined}
            className="fixed inset-y-0 left-0 z-50 flex w-72 max-w-[85vw] flex-col gap-5 overflow-y-auto border-line border-r bg-surface p-4"
          >
            <Dialog.Title className="sr-only">Menu</Dialog.Title>
            <Brand />
            <SubmitLink />
            <NavigationList />
            <div className="mt-auto">
              <ConnectionMark />
            </div>
          </Dialog.Content>
        </Dialog.Portal>
      </Dialog.Root>
      <Brand />
      <div className="ml-auto flex items-center gap-1">
        <ThemeSwitch />
        <AccountMenu compact />
      </div>
    </header>
  );
}

function Brand() {
  const { hub } = useSession();
  return (
    <Link href="/" className="flex min-w-0 items-center gap-2.5 font-semibold text-ink no-underline">
      <Mark />
      <span className="truncate">{hub?.name ?? "ComputePool"}</span>
    </Link>
  );
}

function SubmitLink() {
  return (
    <ButtonLink href="/submit" look="primary">
      <Plus /> Submit a job
    </ButtonLink>
  );
}

function NavigationList() {
  const pathname = usePathname();
  const { account } = useSession();
  return (
    <nav aria-label="Pages">
      <ul className="grid gap-0.5">
        {NAVIGATION.filter(({ role }) => !role || account?.roles.includes(role)).map((item) => (
          <li key={item.href}>
            <Link
              href={item.href}
              aria-current={isCurrent(item, pathname) ? "page" : undefined}
              className={classes(
                "flex items-center gap-3 rounded-control px-3 py-2 font-medium no-underline",
                isCurrent(item, pathname) ? "bg-accent-soft text-accent" : "text-muted hover:bg-hover hover:text-ink",
              )}
            >
              <item.icon size={18} /> {item.label}
            </Link>
          </li>
        ))}
      </ul>
    </nav>
  );
}
