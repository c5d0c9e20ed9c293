"use client";
import { Page } from "@/components/ui/page";

export default function Placeholder() {
  return <Page title="market">…</Page>;
}
