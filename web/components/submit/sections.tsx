"use client";
// The options of a job, in sections that unfold.
import { classes } from "@/components/ui/classes";
import { CheckField, SelectField, TextArea, TextField } from "@/components/ui/field";
import { $api } from "@/lib/api/client";
import { FIELDS, type FieldSection, FLAGS, SECTIONS, type TextName } from "./fields";
import type { Errors, Form } from "./form";
import { Section } from "./section";

export interface FieldsProps {
  form: Form;
  errors: Errors;
  change: (fields: Partial<Form>) => void;
}

export function Sections(props: FieldsProps) {
  return SECTIONS.map((section) => <FormSection key={section.title} section={section} {...props} />);
}

function FormSection({ section, form, errors, change }: FieldsProps & { section: FieldSection }) {
  const suggestions = useSuggestions();
  const { title, none, names } = section;
  const flags = names.includes("timeout") ? FLAGS : [];
  const summary = [
    ...names.flatMap((name) => {
      const { brief, label } = FIELDS[name];
      return form[name] ? [`${brief ?? label}: ${form[name].replaceAll("\n", ", ")}`] : [];
    }),
    ...flags.flatMap(({ name }) => (form[name] ? [name] : [])),
  ];
  return (
    <Section
      title={title}
      summary={summary.join(" · ") || none}
      isWrong={[...names, ...flags.map(({ name }) => name)].some((name) => errors[name])}
    >
      <div className={classes("grid gap-4", names.length % 3 === 0 ? "grid-cols-2 sm:grid-cols-3" : "sm:grid-cols-2")}>
        {names.map((name) => (
          <Control
            key={name}
            name={name}
            value={form[name]}
            error={errors[name]}
            onText={(text) => change({ [name]: text })}
            suggestions={suggestions}
          />
        ))}
      </div>
      {flags.map(({ name, label, hint }) => (
        <CheckField
          key={name}
          label={label}
          hint={hint}
          checked={form[name]}
          onChange={(event) => change({ [name]: event.target.checked })}
        />
      ))}
    </Section>
  );
}

interface ControlProps {
  name: TextName;
  value: string;
  error: string | undefined;
  onText: (text: string) => void;
  suggestions: ReturnType<typeof useSuggestions>;
}

function Control({ name, value, error, onText, suggestions }: ControlProps) {
  const { label, hint, placeholder, type, choices, suggest = [], isWide } = FIELDS[name];
  const onChange = (event: { target: { value: string } }) => onText(event.target.value);
  const props = { label, hint, value, error, onChange, className: isWide ? "col-span-full" : undefined };
  if (choices) {
    const options = [{ value: "", label: "any" }, ...choices.map((choice) => ({ value: choice, label: choice }))];
    return <SelectField options={options} {...props} />;
  }
  if (type === "lines" || type === "pairs") return <TextArea rows={3} placeholder={placeholder} spellCheck={false} {...props} />;
  const words = typeof suggest === "string" ? suggestions[suggest] : suggest;
  const list = words.length > 0 ? `submit-${name}` : undefined;
  return (
    <>
      <TextField
        placeholder={placeholder}
        inputMode={type === "whole" ? "numeric" : type === "number" || type === "credits" ? "decimal" : undefined}
        unit={type === "credits" ? "credits" : undefined}
        list={list}
        autoComplete="off"
        spellCheck={false}
        {...props}
      />
      {list && (
        <datalist id={list}>
          {words.map((word) => (
            <option key={word} value={word} />
          ))}
        </datalist>
      )}
    </>
  );
}

const SLOW = { staleTime: 60_000 };

/** Tiers, regions and groups that the pool has. */
function useSuggestions(): Record<"tiers" | "regions" | "groups", string[]> {
  const market = $api.useQuery("get", "/market", undefined, SLOW);
  const groups = $api.useQuery("get", "/groups", { params: { query: { kind: "group", limit: 50 } } }, SLOW);
  const zones = market.data?.zones ?? [];
  const unique = (words: string[]) => [...new Set(words)].sort();
  return {
    tiers: unique(zones.map((zone) => zone.tier)),
    regions: unique(zones.map((zone) => zone.region)),
    groups: unique((groups.data?.groups ?? []).map((group) => group.name)),
  };
}
