"use client";
import { useEffect, useMemo, useRef, useState } from "react";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { Notice } from "@/components/ui/states";
import { Money } from "@/components/ui/values";
import type { Schemas } from "@/lib/api/client";
import { bytes, pluralize } from "@/lib/format";
import { setParams } from "@/lib/use-params";
import { useDraft } from "./draft";
import { EMPTY, type Errors, type FieldName, type Form, fieldOf } from "./form";
import { Inputs, useUploads } from "./inputs";
import { QuotePanel } from "./quote-panel";
import { readForm } from "./request";
import { Section } from "./section";
import { Sections } from "./sections";
import { Snippets } from "./snippets";
import { TemplateRow } from "./template-row";
import type { Template } from "./templates";
import { useQuote } from "./use-quote";
import { useResubmit } from "./use-resubmit";
import { useSubmission } from "./use-submission";
import { Work } from "./work";

export function SubmitForm() {
  const draft = useDraft();
  const { form } = draft;
  const submission = useSubmission(draft.forget);
  const uploads = useUploads((input) =>
    draft.change((before) => ({ inputs: [...before.inputs.filter((one) => one.name !== input.name), input] })),
  );
  const again = useResubmit(draft);
  const [tried, setTried] = useState(false);
  const reading = useMemo(() => readForm(form), [form]);
  const quote = useQuote(reading);
  const place = submission.refusal ? fieldOf(submission.refusal.field, form) : null;
  const quoted = quote.quote.error ? fieldOf((quote.quote.error as { field?: string }).field, form) : null;
  const errors: Errors = {
    ...(quoted && { [quoted]: sentence(quote.quote.error) }),
    ...(place && { [place]: submission.refusal?.detail }),
    ...(tried ? reading.errors : withoutEmpty(reading.errors, form)),
  };
  const waits = uploads.uploads.length > 0;
  const here = new Set(form.inputs.filter((input) => !draft.fetched.includes(input.name)).map((input) => input.name));
  const section = { form, errors, change: draft.change };
  const element = useRef<HTMLFormElement>(null);
  useFirstError(element, submission.refusal);

  const take = (template: Template) => {
    draft.replace({ form: { ...EMPTY, ...template.form }, again: draft.again });
    setParams({ again: "" });
  };
  const submit = () => {
    setTried(true);
    if (!waits && !again.loading && Object.keys(reading.errors).length === 0) void submission.submit(form, reading);
    // After React has drawn the errors.
    else setTimeout(() => element.current?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus());
  };
  const button = (
    <Button type="submit" look="primary" pending={submission.pending} disabled={waits || again.loading}>
      {waits ? "Uploading files…" : "Submit"}
    </Button>
  );
  return (
    <form
      ref={element}
      noValidate
      aria-label="Job"
      className="grid items-start gap-5 xl:grid-cols-[minmax(0,1fr)_26rem]"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
      onKeyDown={(event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
          event.preventDefault();
          submit();
        }
      }}
    >
      <div className="grid min-w-0 gap-5">
        {again.notice}
        <TemplateRow chosen={form} choose={take} />
        <Work {...section} />
        <Card flush>
          <Section title="Files" summary={fileSummary(form.inputs)} isWrong={Boolean(errors.inputs) || waits}>
            <Inputs
              inputs={form.inputs}
              uploads={uploads.uploads}
              error={errors.inputs}
              add={uploads.add}
              stop={uploads.stop}
              remove={(name) => draft.change({ inputs: form.inputs.filter((input) => input.name !== name) })}
            />
          </Section>
          <Sections {...section} />
        </Card>
      </div>
      <div className="contents xl:sticky xl:top-5 xl:grid xl:min-w-0 xl:gap-5">
        <QuotePanel asked={quote} />
        {submission.refusal && !place && (
          <Notice tone="bad">
            <strong>{submission.refusal.title}.</strong> {submission.refusal.detail}
          </Notice>
        )}
        <div className="panel sticky bottom-2 z-10 flex items-center justify-between gap-4 p-4 shadow-lg xl:static xl:shadow-none">
          <span className="min-w-0 text-muted text-sm">
            {quote.quote.data && !quote.wrong ? <Reserved quote={quote.quote.data} /> : " "}
          </span>
          {button}
        </div>
        <Snippets form={form} reading={reading} here={here} />
      </div>
    </form>
  );
}

/** The hold. There is one even if an own node would run the job for free. */
function Reserved({ quote: { own_node, hold_total } }: { quote: Schemas["QuoteView"] }) {
  if (!hold_total) return <>Free: nothing is put on hold</>;
  if (own_node)
    return (
      <>
        Free on your own node; otherwise at most <Money micro={hold_total} unit />, on hold
      </>
    );
  return (
    <>
      <Money micro={hold_total} unit /> on hold; the unused part is refunded
    </>
  );
}

/** An empty field is no error before somebody submits the form. */
function withoutEmpty(errors: Errors, form: Form): Errors {
  return Object.fromEntries(Object.entries(errors).filter(([name]) => String(form[name as FieldName]).trim() !== ""));
}

function sentence(error: unknown): string {
  return (error as { detail?: string }).detail ?? "";
}

function fileSummary(inputs: { size: number }[]): string {
  if (inputs.length === 0) return "none";
  const size = inputs.reduce((sum, input) => sum + input.size, 0);
  return `${pluralize(inputs.length, "file")}, ${bytes(size)}`;
}

function useFirstError(element: React.RefObject<HTMLFormElement | null>, refusal: unknown): void {
  useEffect(() => {
    if (refusal) element.current?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
  }, [element, refusal]);
}
