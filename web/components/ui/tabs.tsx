"use client";
import { Tabs as Radix } from "radix-ui";
import { type ReactNode, useEffect, useRef } from "react";
import { useParam } from "@/lib/use-params";

export interface Tab {
  value: string;
  label: ReactNode;
  content: ReactNode;
}

/** The selected tab is in the address, as the parameter `param`. */
export function Tabs({ tabs, label, param = "tab" }: { tabs: Tab[]; label: string; param?: string }) {
  const [value, setValue] = useParam(param);
  const chosen = tabs.some((tab) => tab.value === value) ? value : tabs[0]?.value;
  const list = useRef<HTMLDivElement>(null);
  // On a narrow screen it may be out of sight.
  // biome-ignore lint/correctness/useExhaustiveDependencies: when another one is selected
  useEffect(() => {
    const tab = list.current?.querySelector<HTMLElement>("[data-state=active]");
    if (list.current && tab) list.current.scrollLeft = tab.offsetLeft - (list.current.clientWidth - tab.offsetWidth) / 2;
  }, [chosen]);
  return (
    <Radix.Root value={chosen} onValueChange={setValue} className="grid min-w-0 gap-4">
      <Radix.List
        ref={list}
        aria-label={label}
        className="relative flex gap-1 overflow-x-auto overflow-y-hidden border-line border-b"
      >
        {tabs.map((tab) => (
          <Radix.Trigger
            key={tab.value}
            value={tab.value}
            // Radix ignores a click on the tab that it still draws as selected, although another click may just have changed that.
            onClick={() => setValue(tab.value)}
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
