"use client";
import type { ReactNode } from "react";
import { Card, Fact, Facts } from "@/components/ui/card";
import { classes } from "@/components/ui/classes";
import { Notice, Skeleton } from "@/components/ui/states";
import { Money } from "@/components/ui/values";
import type { Schemas } from "@/lib/api/client";
import { asProblem } from "@/lib/api/problem";
import { count, duration } from "@/lib/format";
import { NodesThatFit } from "./nodes-that-fit";
import type { useQuote } from "./use-quote";

type Quote = Schemas["QuoteView"];

export function QuotePanel({ asked }: { asked: ReturnType<typeof useQuote> }) {
  const { quote, preview, wrong } = asked;
  return (
    <Card title="Quote" note="At current prices; updated as you type.">
      <div aria-live="polite" aria-busy={quote.isFetching} className="grid min-h-64 content-start gap-4">
        {wrong ? (
          <Notice tone="warn">Fix the marked fields to get a quote.</Notice>
        ) : quote.error ? (
          <Notice tone="warn">{asProblem(quote.error).detail}</Notice>
        ) : quote.data ? (
          <Numbers quote={quote.data} stale={quote.isPlaceholderData} />
        ) : (
          <Waiting />
        )}
        {!wrong && preview.data && <NodesThatFit preview={preview.data} />}
      </div>
    </Card>
  );
}

function Numbers({ quote, stale }: { quote: Quote; stale: boolean }) {
  return (
    <div className={classes("grid gap-4 transition-opacity", stale && "opacity-60")}>
      <Facts>
        <Quoted name="Price per hour">
          <Price quote={quote} />
        </Quoted>
        <Quoted name={quote.items > 1 ? `On hold for ${count(quote.items)} runs` : "On hold"}>
          <Money micro={quote.hold_total} unit />
        </Quoted>
        <Quoted name="Nodes free now">
          {count(quote.nodes_now)} <span className="font-normal text-muted text-sm">of {count(quote.nodes_able)} suitable</span>
        </Quoted>
        <Quoted name="Starts">{estimate(quote.start)}</Quoted>
        <Quoted name="Runs">{estimate(quote.run, "< 1 s")}</Quoted>
        <Quoted name="Finishes">{estimate(quote.finish)}</Quoted>
      </Facts>
      {!quote.affordable && (
        <Notice tone="warn">
          <Money micro={quote.missing} exact /> credits are missing. You have <Money micro={quote.available} exact />.
        </Notice>
      )}
      <details className="text-sm" open={quote.nodes_able === 0}>
        <summary className="text-muted hover:text-ink">Explanation</summary>
        <ul className="mt-2 grid gap-1.5 text-muted">
          {quote.sentences.map((sentence) => (
            <li key={sentence}>{sentence}</li>
          ))}
        </ul>
      </details>
    </div>
  );
}

function Price({ quote: { price_low: low, price_high: high } }: { quote: Quote }) {
  if (low == null || high == null) return <>–</>;
  if (low === high) return <Money micro={low} unit />;
  return (
    <>
      <Money micro={low} /> – <Money micro={high} unit />
    </>
  );
}

function estimate({ p50_ms: half }: Schemas["Estimate"], short = "at once"): string {
  if (half == null) return "unknown";
  return half < 1000 ? short : `≈ ${duration(half)}`;
}

function Quoted({ name, children }: { name: string; children: ReactNode }) {
  return (
    <Fact name={name}>
      <span className="num font-semibold text-lg leading-snug">{children}</span>
    </Fact>
  );
}

function Waiting() {
  return (
    <div role="status" aria-label="Loading the quote" className="grid grid-cols-2 gap-x-6 gap-y-3">
      {["a", "b", "c", "d", "e", "f"].map((key) => (
        <div key={key} className="grid gap-1">
          <Skeleton className="h-4 w-20" />
          <Skeleton className="h-6 w-28" />
        </div>
      ))}
      <Skeleton className="col-span-2 h-20" />
    </div>
  );
}
