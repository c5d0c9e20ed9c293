"use client";
// What other people's jobs may do on a node. The hub and the node's agent both enforce it.
import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { CheckField, TextField } from "@/components/ui/field";
import { Notice, QueryView } from "@/components/ui/states";
import { useToast } from "@/components/ui/toast";
import { $api, type Schemas } from "@/lib/api/client";
import { asProblem } from "@/lib/api/problem";
import type { NodeView } from "./node-cells";
import { asDraft, asRules, type Draft, sameDraft, type Typed } from "./rules-draft";

interface RulesProps {
  node: NodeView;
  draft: Draft | null; // null: unchanged
  setDraft: (draft: Draft | null) => void;
}

export function NodeRules(props: RulesProps) {
  const query = $api.useQuery("get", "/nodes/{node_id}/rules", { params: { path: { node_id: props.node.id } } });
  return <QueryView query={query}>{(view) => <RulesForm {...props} view={view} />}</QueryView>;
}

function RulesForm({ node, draft, setDraft, view }: RulesProps & { view: Schemas["NodeRulesView"] }) {
  const toast = useToast();
  const queries = useQueryClient();
  const kept = asDraft(view.rules);
  const shown = draft ?? kept;
  const [wrong, setWrong] = useState<{ field: string; error: string } | null>(null);
  const put = $api.useMutation("put", "/nodes/{node_id}/rules");

  const change = (changes: Partial<Draft>) => {
    const next = { ...shown, ...changes };
    setDraft(sameDraft(next, kept) ? null : next);
    setWrong(null);
  };
  const save = async (event: FormEvent) => {
    event.preventDefault();
    const read = asRules(shown);
    if ("error" in read) return setWrong(read);
    try {
      await put.mutateAsync({ params: { path: { node_id: node.id } }, body: read.rules });
      setWrong(null);
      await queries.invalidateQueries({ queryKey: ["get", "/nodes/{node_id}/rules"] });
      setDraft(null);
      toast.success("Rules saved.");
    } catch (refusal) {
      const { field, detail } = asProblem(refusal);
      // A fault in a list is named with its position: allow_labels.0.
      setWrong({ field: field?.split(".")[0] ?? "", error: detail });
    }
  };
  const text = (name: Typed) => ({
    value: shown[name],
    error: wrong?.field === name ? wrong.error : undefined,
    onChange: (event: { target: { value: string } }) => change({ [name]: event.target.value }),
  });
  return (
    <form onSubmit={save} className="grid min-w-0 gap-5 xl:grid-cols-[minmax(0,2fr)_minmax(0,1fr)] xl:items-start">
      <div className="grid min-w-0 gap-5">
        <Card title="Submitters" note="Your own jobs always run. Enter names or IDs, separated by commas.">
          <div className="grid gap-4 sm:grid-cols-2">
            <TextField label="Only jobs of" placeholder="everyone" {...text("allow_submitters")} />
            <TextField label="No jobs of" placeholder="no one" {...text("deny_submitters")} />
            <TextField
              label="Minimum reputation of a submitter"
              unit="%"
              inputMode="decimal"
              placeholder="any"
              {...text("score_min")}
            />
          </div>
        </Card>
        <Card title="Kinds of jobs" note="Submitters label their jobs with the kind of work.">
          <div className="grid gap-4 sm:grid-cols-2">
            <TextField label="Only jobs labelled" placeholder="any label, or none" {...text("allow_labels")} />
            <TextField label="No jobs labelled" placeholder="none" {...text("deny_labels")} />
          </div>
          <div className="mt-4 grid gap-3">
            <CheckField
              label="Jobs that use the network"
              hint={
                node.profile.network
                  ? "Only hosts that a job lists, and never your local network."
                  : "The node was started without --net, so it takes no such jobs, whatever you select here."
              }
              checked={shown.network}
              onChange={(event) => change({ network: event.target.checked })}
            />
            <CheckField
              label="Jobs that use a GPU"
              hint={node.profile.gpus?.length ? undefined : "This node has none."}
              checked={shown.gpus}
              onChange={(event) => change({ gpus: event.target.checked })}
            />
          </div>
        </Card>
        <Card title="Limits per job" note="Leave a field empty for no limit.">
          <div className="grid gap-4 sm:grid-cols-3">
            <TextField label="Maximum duration" unit="min" inputMode="numeric" {...text("minutes_max")} />
            <TextField label="Maximum memory" unit="MB" inputMode="numeric" {...text("ram_mb_max")} />
            <TextField label="Maximum disk" unit="MB" inputMode="numeric" {...text("disk_mb_max")} />
          </div>
        </Card>
        {wrong && !(wrong.field in shown) && <Notice tone="bad">{wrong.error}</Notice>}
        <div className="flex flex-wrap items-center gap-2">
          <Button type="submit" look="primary" disabled={draft === null} pending={put.isPending}>
            Save the rules
          </Button>
          <Button
            disabled={draft === null || put.isPending}
            onClick={() => {
              setDraft(null);
              setWrong(null);
            }}
          >
            Undo changes
          </Button>
          {draft !== null && <span className="text-muted">Not saved yet.</span>}
        </div>
      </div>
      <InForce sentences={view.sentences} />
    </form>
  );
}

function InForce({ sentences }: { sentences: string[] }) {
  return (
    <Card title="Current rules">
      {sentences.length > 0 ? (
        <ul className="grid gap-1.5">
          {sentences.map((sentence) => (
            <li key={sentence} className="break-words">
              {sentence}
            </li>
          ))}
        </ul>
      ) : (
        <p>No rules: the node takes any job that fits.</p>
      )}
      <p className="mt-3 text-muted text-sm">
        Rules apply at once to new jobs of other people. Running jobs continue. The hub does not place jobs that break them, and
        tells their submitters why. The agent on the node refuses such jobs, too.
      </p>
    </Card>
  );
}
