"use client";
import { ChevronsUpDown, KeyRound, LogOut, UserRound } from "lucide-react";
import { DropdownMenu as Menu } from "radix-ui";
import { Link } from "@/components/ui/link";
import { useToast } from "@/components/ui/toast";
import { client } from "@/lib/api/client";
import { isSignedOut } from "@/lib/api/problem";
import { useSession } from "@/lib/session";

const ITEM = "flex items-center gap-2.5 rounded-md px-3 py-2 text-ink no-underline outline-none data-[highlighted]:bg-hover";

export function AccountMenu({ compact = false }: { compact?: boolean }) {
  const { account } = useSession();
  const toast = useToast();
  if (!account) return null;
  return (
    <Menu.Root>
      <Menu.Trigger
        aria-label={`Account: ${account.name}`}
        className="flex min-h-9 min-w-0 items-center gap-2 rounded-control px-2 text-ink hover:bg-hover"
      >
        <UserRound size={18} aria-hidden="true" className="shrink-0 text-muted" />
        {!compact && <span className="truncate">{account.name}</span>}
        {!compact && <ChevronsUpDown size={14} aria-hidden="true" className="shrink-0 text-muted" />}
      </Menu.Trigger>
      <Menu.Portal>
        <Menu.Content align="start" sideOffset={6} className="panel z-50 min-w-56 p-1 shadow-lg">
          <p className="px-3 py-2 text-muted text-sm">
            {account.name} · {account.roles.join(", ")}
          </p>
          <Menu.Item asChild>
            <Link href="/account" className={ITEM}>
              <KeyRound size={16} aria-hidden="true" /> Account and keys
            </Link>
          </Menu.Item>
          <Menu.Item className={ITEM} onSelect={() => void signOut().catch(toast.error)}>
            <LogOut size={16} aria-hidden="true" /> Sign out
          </Menu.Item>
        </Menu.Content>
      </Menu.Portal>
    </Menu.Root>
  );
}

async function signOut(): Promise<void> {
  const { error } = await client.POST("/signout");
  if (error && !isSignedOut(error)) throw error;
  // Everything this page knew goes with it, drafts and codes to join with, too.
  sessionStorage.clear();
  window.location.assign(`${process.env.NEXT_PUBLIC_BASE_PATH ?? ""}/signin/`);
}
