"use client";
import { type ReactNode, useEffect } from "react";
import { useSession } from "@/lib/session";

interface PageProps {
  title: string; // of the browser's tab
  heading?: ReactNode; // if it differs from the title
  above?: ReactNode; // a link back, above the heading
  note?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}

export function Page({ title, heading, above, note, actions, children }: PageProps) {
  const { hub } = useSession();
  useEffect(() => {
    document.title = hub ? `${title} · ${hub.name}` : title;
  }, [title, hub]);
  return (
    <div className="mx-auto grid max-w-[120rem] gap-5 px-4 py-5 sm:px-6 lg:py-7">
      <header className="flex flex-wrap items-start justify-between gap-x-6 gap-y-3">
        <div className="min-w-0">
          {above}
          <h1 className="break-words">{heading ?? title}</h1>
          {note && <div className="text-muted">{note}</div>}
        </div>
        {actions && <div className="flex flex-wrap items-center gap-2">{actions}</div>}
      </header>
      {children}
    </div>
  );
}
