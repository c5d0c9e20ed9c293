"use client";
import { Monitor, Server } from "lucide-react";
import type { Route } from "next";
import { type FormEvent, type ReactNode, useState } from "react";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { classes } from "@/components/ui/classes";
import { Confirm } from "@/components/ui/dialog";
import { SelectField, TextField } from "@/components/ui/field";
import { Link } from "@/components/ui/link";
import { Notice } from "@/components/ui/states";
import { Ago } from "@/components/ui/values";
import { $api } from "@/lib/api/client";
import { asProblem } from "@/lib/api/problem";
import type { MadeCode } from "./add-node";
import { useRenewNodes } from "./use-node";

const HOURS = [
  { value: "3600", label: "an hour" },
  { value: "28800", label: "8 hours" },
  { value: "86400", label: "a day" },
];

/** The first step: one machine, or several with one code. */
export function MakeCode({ onMade }: { onMade: (code: MadeCode) => void }) {
  const [many, setMany] = useState(false);
  const [hosts, setHosts] = useState("5");
  const [life, setLife] = useState("3600");
  const make = $api.useMutation("post", "/nodes/codes", { onSuccess: onMade });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    make.mutate({ body: many ? { hosts: Number(hosts), lifetime_s: Number(life) } : { hosts: 1 } });
  };
  const problem = make.error ? asProblem(make.error) : null;
  return (
    <Card title="What do you want to lend?">
      <form onSubmit={submit} className="grid gap-4">
        <fieldset className="grid gap-3 sm:grid-cols-2">
          <legend className="sr-only">How many machines</legend>
          <Kind chosen={!many} choose={() => setMany(false)} icon={<Monitor size={20} aria-hidden="true" />} title="One machine">
            A single-use code for one computer.
          </Kind>
          <Kind
            chosen={many}
            choose={() => setMany(true)}
            icon={<Server size={20} aria-hidden="true" />}
            title="Several machines"
          >
            One code for a rack, a lab or a small mesh: run the same command on each.
          </Kind>
        </fieldset>
        {many && (
          <div className="grid gap-4 sm:grid-cols-2">
            <TextField
              label="How many machines"
              type="number"
              min={1}
              max={1000}
              required
              value={hosts}
              onChange={(event) => setHosts(event.target.value)}
              error={problem?.field === "hosts" ? problem.detail : undefined}
            />
            <SelectField
              label="Valid for"
              options={HOURS}
              value={life}
              onChange={(event) => setLife(event.target.value)}
              error={problem?.field === "lifetime_s" ? problem.detail : undefined}
            />
          </div>
        )}
        {problem && !["hosts", "lifetime_s"].includes(problem.field ?? "") && <Notice tone="bad">{problem.detail}</Notice>}
        <Button type="submit" look="primary" pending={make.isPending} className="justify-self-start">
          Create a code
        </Button>
      </form>
    </Card>
  );
}

interface KindProps {
  chosen: boolean;
  choose: () => void;
  icon: ReactNode;
  title: string;
  children: ReactNode;
}

function Kind({ chosen, choose, icon, title, children }: KindProps) {
  return (
    <label
      className={classes(
        "flex cursor-pointer items-start gap-3 rounded-control border p-4 focus-within:outline-2 focus-within:outline-accent focus-within:outline-offset-2",
        chosen ? "border-accent bg-accent-soft" : "border-line hover:bg-hover",
      )}
    >
      <input type="radio" name="kind" checked={chosen} onChange={choose} className="mt-1 accent-accent" />
      <span className="min-w-0">
        <span className="flex items-center gap-2 font-medium">
          {icon} {title}
        </span>
        <span className={chosen ? "" : "text-muted"}>{children}</span>
      </span>
    </label>
  );
}

/** Codes for several machines live for hours: what became of them, and an end to them. */
export function OpenCodes() {
  const query = $api.useQuery("get", "/nodes/codes");
  const renew = useRenewNodes();
  const end = $api.useMutation("delete", "/nodes/codes/{code_id}");
  const codes = query.data?.codes ?? [];
  if (codes.length === 0) return null;
  return (
    <Card title="Open codes" note="Codes are shown only once, when they are created.">
      <ul className="divide-y divide-line">
        {codes.map((code) => (
          <li key={code.id} className="flex flex-wrap items-center justify-between gap-x-4 gap-y-2 py-2.5">
            <span>
              <Link href={`/nodes/add?code_id=${encodeURIComponent(code.id)}` as Route} className="link">
                {code.used} of {code.hosts} machines joined
              </Link>
              <span className="text-muted">
                {" "}
                · ends <Ago ms={code.expires_at_ms} />
              </span>
            </span>
            <Confirm
              trigger={(open) => (
                <Button small onClick={open}>
                  End it
                </Button>
              )}
              title="Revoke this code?"
              action="Revoke"
              confirm={async () => {
                await end.mutateAsync({ params: { path: { code_id: code.id } } });
                await renew();
              }}
            >
              No more machines can join with it. Those that joined stay.
            </Confirm>
          </li>
        ))}
      </ul>
    </Card>
  );
}
