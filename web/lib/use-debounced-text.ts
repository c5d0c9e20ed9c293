"use client";
// Words that are typed into a filter: they go into the address when the typing pauses, and come from there on "back".
import { useEffect, useRef, useState } from "react";

const TYPING_MS = 350;

/** What stands in the field, and how to change it. `ask` is called with it, without spaces around, unless it is wrong. */
export function useDebouncedText(asked: string, ask: (text: string) => void, isWrong: (text: string) => boolean = () => false) {
  const [typed, setTyped] = useState(asked);
  const sent = useRef(asked); // what the address says because of this field: that must not undo what was typed since
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
