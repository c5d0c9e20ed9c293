"use client";
// A short message about the outcome of an action. Announced to screen readers; disappears by itself.
import { createContext, type ReactNode, useCallback, useContext, useRef, useState } from "react";
import { asProblem } from "@/lib/api/problem";
import { classes } from "./classes";

interface Toast {
  id: number;
  text: string;
  bad: boolean;
}

interface Toasts {
  success: (text: string) => void;
  error: (error: unknown) => void;
}

const SHOWN_MS = 6000;
const Context = createContext<Toasts>({ success: () => {}, error: () => {} });

export function ToastProvider({ children }: { children: ReactNode }) {
  const [toasts, setToasts] = useState<Toast[]>([]);
  const next = useRef(0);
  const add = useCallback((text: string, bad: boolean) => {
    next.current += 1;
    const id = next.current;
    setToasts((before) => [...before.slice(-3), { id, text, bad }]);
    setTimeout(() => setToasts((before) => before.filter((toast) => toast.id !== id)), SHOWN_MS);
  }, []);
  const [api] = useState<Toasts>(() => ({
    success: (text) => add(text, false),
    error: (error) => add(asProblem(error).detail, true),
  }));
  return (
    <Context.Provider value={api}>
      {children}
      <div
        aria-live="polite"
        className="pointer-events-none fixed inset-x-4 bottom-4 z-50 grid justify-items-center gap-2 sm:left-auto sm:justify-items-end"
      >
        {toasts.map((toast) => (
          <p
            key={toast.id}
            className={classes("panel max-w-md break-words px-4 py-2.5 shadow-lg", toast.bad ? "text-bad" : "text-ink")}
          >
            {toast.text}
          </p>
        ))}
      </div>
    </Context.Provider>
  );
}

export function useToast(): Toasts {
  return useContext(Context);
}
