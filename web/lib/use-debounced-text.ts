"use client";
// A typed filter that goes into the address when the typing pauses, and follows the address on "back".
import { useEffect, useRef, useState } from "react";

const TYPING_MS = 350;

/** The text of the field, and its setter. `ask` is called with the trimmed text unless it is wrong. */
export function useDebouncedText(asked: string, ask: (text: string) => void, isWrong: (text: string) => boolean = () => false) {
  const [typed, setTyped] = useState(asked);
  const sent = useRef(asked); // what this field put into the address, which must not undo later typing
  const latest = useRef({ ask, isWrong });
  latest.current = { ask, isWrong };
  useEffect(() => {
    if (asked === sent.current) return;
    sent.current = asked;
    setTyped(asked);
  }, [asked]);
  useEffect(() => {
    const text = typed.trim();
    if (text === sent.current || latest.current.isWrong(text)) return;
    const timer = setTimeout(() => {
      sent.current = text;
      latest.current.ask(text);
    }, TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  return [typed, setTyped] as const;
}
