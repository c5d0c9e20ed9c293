"use client";
import { type ReactNode, useId } from "react";

interface MenuProps {
  button: (props: { popoverTarget: string }) => ReactNode;
  children: ReactNode; // buttons and links of the class ITEM; a click on any of them closes the menu
}

export const MENU_ITEM =
  "flex items-center gap-2.5 rounded-md px-3 py-2 text-left text-ink no-underline hover:bg-hover focus-visible:bg-hover";

/** A menu as the browser's own popover, beside the button that opens it. */
export function Menu({ button, children }: MenuProps) {
  const id = useId();
  return (
    <>
      {button({ popoverTarget: id })}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: clicks and keys on the items bubble up to it */}
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: as above */}
      <div id={id} popover="auto" className="menu panel p-1 shadow-lg" onClick={(event) => event.currentTarget.hidePopover()}>
        <div className="grid min-w-56">{children}</div>
      </div>
    </>
  );
}
