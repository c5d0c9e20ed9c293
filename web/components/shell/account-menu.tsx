"use client";
import { ChevronsUpDown, KeyRound, LogOut, UserRound } from "lucide-react";
import { Link } from "@/components/ui/link";
import { MENU_ITEM, Menu } from "@/components/ui/menu";
import { useToast } from "@/components/ui/toast";
import { BASE_PATH, client } from "@/lib/api/client";
import { isSignedOut } from "@/lib/api/problem";
import { useSession } from "@/lib/session";

export function AccountMenu({ compact = false }: { compact?: boolean }) {
  const { account } = useSession();
  const toast = useToast();
  if (!account) return null;
  return (
    <Menu
      button={(props) => (
        <button
          type="button"
          {...props}
          aria-label={`Account: ${account.name}`}
          className="flex min-h-9 min-w-0 items-center gap-2 rounded-control px-2 text-ink hover:bg-hover"
        >
          <UserRound size={18} className="shrink-0 text-muted" />
          {!compact && <span className="truncate">{account.name}</span>}
          {!compact && <ChevronsUpDown className="shrink-0 text-muted" />}
        </button>
      )}
    >
      <p className="px-3 py-2 text-muted text-sm">
        {account.name} · {account.roles.join(", ")}
      </p>
      <Link href="/account" className={MENU_ITEM}>
        <KeyRound /> Account and keys
      </Link>
      <button type="button" className={MENU_ITEM} onClick={() => void signOut().catch(toast.error)}>
        <LogOut /> Sign out
      </button>
    </Menu>
  );
}

async function signOut(): Promise<void> {
  const { error } = await client.POST("/signout");
  if (error && !isSignedOut(error)) throw error;
  // Includes drafts and enrolment codes.
  sessionStorage.clear();
  window.location.assign(`${BASE_PATH}/signin/`);
}
