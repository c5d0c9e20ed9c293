"use client";
import { X } from "lucide-react";
import { Dialog as Radix } from "radix-ui";
import { type ReactNode, useState } from "react";
import { Button, IconButton } from "./button";
import { Failure } from "./states";

interface DialogProps {
  open: boolean;
  onClose: () => void;
  title: string;
  note?: ReactNode;
  children?: ReactNode;
  wide?: boolean;
}

export function Dialog({ open, onClose, title, note, children, wide = false }: DialogProps) {
  return (
    <Radix.Root open={open} onOpenChange={(is) => !is && onClose()}>
      <Radix.Portal>
        <Radix.Overlay className="overlay" />
        <Radix.Content
          aria-describedby={undefined}
          className={`panel -translate-x-1/2 fixed top-[8vh] left-1/2 z-50 grid max-h-[84vh] w-[calc(100vw-2rem)] gap-4 overflow-y-auto p-5 shadow-2xl ${wide ? "max-w-3xl" : "max-w-lg"}`}
        >
          <div className="flex items-start justify-between gap-4">
            <div>
              <Radix.Title>{title}</Radix.Title>
              {note && <div className="text-muted">{note}</div>}
            </div>
            <Radix.Close asChild>
              <IconButton label="Close" className="-mt-1.5 -mr-2 shrink-0">
                <X size={18} aria-hidden="true" />
              </IconButton>
            </Radix.Close>
          </div>
          {children}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}

interface ConfirmProps {
  trigger: (open: () => void) => ReactNode;
  title: string;
  children?: ReactNode; // what will happen
  action: string; // the verb on the button
  danger?: boolean;
  confirm: () => Promise<unknown>;
}

/** Asks before something that cannot be taken back; stays open with the reason when the hub refuses. */
export function Confirm({ trigger, title, children, action, danger = false, confirm }: ConfirmProps) {
  const [open, setOpen] = useState(false);
  const [pending, setPending] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const close = () => {
    setOpen(false);
    setError(null);
  };
  const act = async () => {
    setPending(true);
    try {
      await confirm();
      close();
    } catch (refusal) {
      setError(refusal);
    } finally {
      setPending(false);
    }
  };
  return (
    <>
      {trigger(() => setOpen(true))}
      <Dialog open={open} onClose={close} title={title}>
        {children && <div className="text-muted">{children}</div>}
        {error !== null && <Failure error={error} />}
        <div className="flex justify-end gap-2">
          <Button onClick={close}>Keep</Button>
          <Button look={danger ? "danger" : "primary"} pending={pending} onClick={() => void act()}>
            {action}
          </Button>
        </div>
      </Dialog>
    </>
  );
}
