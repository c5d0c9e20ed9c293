"use client";
import { useMutation } from "@tanstack/react-query";
import { X } from "lucide-react";
import { Dialog as Radix } from "radix-ui";
import { type ReactNode, useState } from "react";
import { Button, IconButton } from "./button";
import { Failure } from "./states";
import { useToast } from "./toast";

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
                <X size={18} />
              </IconButton>
            </Radix.Close>
          </div>
          {children}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}

interface ConfirmProps<T> {
  trigger: (open: () => void) => ReactNode;
  title: string;
  children?: ReactNode; // what will happen
  action: string; // the verb on the button
  danger?: boolean;
  confirm: () => Promise<T>;
  success?: (result: T) => string; // what to report afterwards
}

/** Asks before an action; stays open with the reason when the hub refuses. */
export function Confirm<T>({ trigger, title, children, action, danger = false, confirm, success }: ConfirmProps<T>) {
  const [open, setOpen] = useState(false);
  const toast = useToast();
  const act = useMutation({
    mutationFn: confirm,
    onSuccess: (result) => {
      setOpen(false);
      if (success) toast.success(success(result));
    },
  });
  const close = () => {
    setOpen(false);
    act.reset();
  };
  return (
    <>
      {trigger(() => setOpen(true))}
      <Dialog open={open} onClose={close} title={title}>
        {children && <div className="text-muted">{children}</div>}
        {act.error && <Failure error={act.error} />}
        <div className="flex justify-end gap-2">
          <Button onClick={close}>Go back</Button>
          <Button look={danger ? "danger" : "primary"} pending={act.isPending} onClick={() => act.mutate()}>
            {action}
          </Button>
        </div>
      </Dialog>
    </>
  );
}
