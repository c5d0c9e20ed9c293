"use client";
// What others may do on a node. The hub holds every placement against this, and the agent again.
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
import { useRenewNodes } from "./use-node";

interface RulesProps {
  node: NodeView;
  draft: Draft | null; // null: as they are kept
  setDraft: (draft: Draft | null) => void;
}

export function NodeRules(props: RulesProps) {
  const query = $api.useQuery("get", "/nodes/{node_id}/rules", { params: { path: { node_id: props.node.id } } });
  return <QueryView query={query}>{(view) => <RulesForm {...props} view={view} />}</QueryView>;
}

function RulesForm({ node, draft, setDraft, view }: RulesProps & { view: Schemas["NodeRulesView"] }) {
  const toast = useToast();
  const renew = useRenewNodes();
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
      await renew();
      setDraft(null);
      toast.success("Rules saved.");
    } catch (refusal) {
      const { field, detail } = asProblem(refusal);
      // A list's fault is named with the place in it: allow_labels.0.
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
        <Card title="Whose jobs" note="Your own jobs always run. Names or IDs, separated by commas.">
          <div className="grid gap-4 sm:grid-cols-2">
            <TextField label="Only jobs of" hint="Empty: everyone." placeholder="everybody" {...text("allow_submitters")} />
            <TextField label="No jobs of" placeholder="nobody" {...text("deny_submitters")} />
            <TextField
              label="Minimum score of a submitter"
              hint="From 0 to 1: how often their jobs end well. Empty: any."
              inputMode="decimal"
              placeholder="any"
              {...text("score_min")}
            />
          </div>
        </Card>
        <Card title="What kind of jobs" note="Labels are words that submitters give their jobs.">
          <div className="grid gap-4 sm:grid-cols-2">
            <TextField
              label="Only jobs labelled"
              hint="Empty: with any label or none."
              placeholder="anything"
              {...text("allow_labels")}
            />
            <TextField label="No jobs labelled" placeholder="nothing" {...text("deny_labels")} />
          </div>
          <div className="mt-4 grid gap-3">
            <CheckField
              label="Jobs that use the network"
              hint={
                node.profile.network
                  ? "Only hosts that a job lists, and never your local network."
                  : "The node was started without --net, so it takes none, whatever you select here."
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
        <Card title="How large" note="Limits per job. Leave empty for no limit.">
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
        Rules apply at once to new jobs of other people. Running jobs continue. The hub places no job against them and tells its
        submitter why; the agent on the node refuses such a job, too.
      </p>
    </Card>
  );
}
