"use client";
import { Tabs as Radix } from "radix-ui";
import { type ReactNode, useEffect, useRef } from "react";

export interface Tab {
  value: string;
  label: ReactNode;
  content: ReactNode;
}

/** The chosen tab belongs into the address: value and onChange from useParam("tab"). */
export function Tabs({
  tabs,
  value,
  onChange,
  label,
}: {
  tabs: Tab[];
  value: string;
  onChange: (value: string) => void;
  label: string;
}) {
  const chosen = tabs.some((tab) => tab.value === value) ? value : tabs[0]?.value;
  const list = useRef<HTMLDivElement>(null);
  // On a narrow screen the chosen one may lie outside.
  // biome-ignore lint/correctness/useExhaustiveDependencies: when another one is chosen
  useEffect(() => {
    const tab = list.current?.querySelector<HTMLElement>("[data-state=active]");
    if (list.current && tab) list.current.scrollLeft = tab.offsetLeft - (list.current.clientWidth - tab.offsetWidth) / 2;
  }, [chosen]);
  return (
    <Radix.Root value={chosen} onValueChange={onChange} className="grid min-w-0 gap-4">
      <Radix.List
        ref={list}
        aria-label={label}
        className="relative flex gap-1 overflow-x-auto overflow-y-hidden border-line border-b"
      >
        {tabs.map((tab) => (
          <Radix.Trigger
            key={tab.value}
            value={tab.value}
            // Radix says nothing of a tab that it takes for the chosen one, which another choice may be about to end.
            onClick={() => onChange(tab.value)}
            className="-mb-px whitespace-nowrap border-transparent border-b-2 px-3 py-2 font-medium text-muted hover:text-ink data-[state=active]:border-accent data-[state=active]:text-ink"
          >
            {tab.label}
          </Radix.Trigger>
        ))}
      </Radix.List>
      {tabs.map((tab) => (
        <Radix.Content key={tab.value} value={tab.value} className="min-w-0">
          {tab.content}
        </Radix.Content>
      ))}
    </Radix.Root>
  );
}
