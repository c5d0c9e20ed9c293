"use client";
import { useState } from "react";
import { Button } from "@/components/ui/button";
import { classes } from "@/components/ui/classes";
import { Dialog } from "@/components/ui/dialog";
import { EMPTY, type Form } from "./form";
import { TEMPLATES, type Template } from "./templates";

/** Examples to begin with. Replacing somebody's own input needs a confirmation. */
export function TemplateRow({ chosen, choose }: { chosen: Form; choose: (template: Template) => void }) {
  const [asked, setAsked] = useState<Template | null>(null);
  const written = JSON.stringify({ ...chosen, kind: EMPTY.kind });
  const own = [{}, ...TEMPLATES.map(({ form }) => form)].every((form) => JSON.stringify({ ...EMPTY, ...form }) !== written);
  return (
    <section aria-label="Templates" className="grid grid-cols-2 gap-2 sm:grid-cols-3 2xl:grid-cols-6">
      {TEMPLATES.map((template) => {
        const here = template.form.source === chosen.source && chosen.kind === "script";
        return (
          <button
            key={template.id}
            type="button"
            aria-pressed={here}
            onClick={() => (own ? setAsked(template) : choose(template))}
            className={classes(
              "panel grid content-start gap-0.5 px-3 py-2.5 text-left hover:bg-hover",
              here && "border-accent bg-accent-soft",
            )}
          >
            <span className={classes("font-medium", here && "text-accent")}>{template.title}</span>
            <span className="text-muted text-sm">{template.note}</span>
          </button>
        );
      })}
      <Dialog
        open={asked !== null}
        onClose={() => setAsked(null)}
        title="Replace your input?"
        note="The template replaces the whole form."
      >
        <div className="flex justify-end gap-2">
          <Button onClick={() => setAsked(null)}>Keep mine</Button>
          <Button
            look="danger"
            onClick={() => {
              if (asked) choose(asked);
              setAsked(null);
            }}
          >
            Replace
          </Button>
        </div>
      </Dialog>
    </section>
  );
}
