"use client";
import type { Route } from "next";
import { useEffect } from "react";
import { Badge } from "@/components/ui/badge";
import { ButtonLink } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { Code } from "@/components/ui/copy";
import { Notice, QueryView } from "@/components/ui/states";
import { $api, type Schemas } from "@/lib/api/client";
import { useNow } from "@/lib/clock";
import { duration } from "@/lib/format";
import type { MadeCode } from "./add-node";
import { JoinSteps } from "./join-steps";
import { nodeHref } from "./node-list";

type Status = Schemas["JoinStatus"];

const EVERY_MS = 1500; // somebody sits in front of it and waits
const DONE_EVERY_MS = 15_000;

interface JoinProps {
  id: string;
  made: MadeCode | null;
  forget: () => void;
}

/** The second step: what to type, and how far the machine has come. */
export function JoinProgress({ id, made, forget }: JoinProps) {
  const query = $api.useQuery(
    "get",
    "/nodes/codes/{code_id}",
    { params: { path: { code_id: id } } },
    { refetchInterval: ({ state }) => (isOver(state.data) ? DONE_EVERY_MS : EVERY_MS) },
  );
  const spent = query.data && !query.data.open;
  useEffect(() => {
    if (spent) forget();
  }, [spent, forget]);
  return (
    <QueryView query={query}>
      {(status) => (
        <div className="grid min-w-0 gap-5 xl:grid-cols-2 xl:items-start">
          <div className="grid min-w-0 gap-5">
            {status.open && (made ? <WhatToType made={made} status={status} /> : <CodeHidden status={status} />)}
            {!status.open && <Over status={status} />}
          </div>
          <Checklist status={status} />
        </div>
      )}
    </QueryView>
  );
}

function isOver(status: Status | undefined): boolean {
  if (!status || status.open) return false;
  return status.state === "expired" || (status.nodes ?? []).every((node) => node.complete);
}

function WhatToType({ made, status }: { made: MadeCode; status: Status }) {
  const commands = made.commands ?? [];
  // What comes after the command with the code is for another day.
  const joins = commands.findIndex((command) => command.command.includes(made.code)) + 1;
  const [now, later] = [commands.slice(0, joins), commands.slice(joins)];
  return (
    <Card title="Run this on the machine" aside={<CountDown untilMs={status.expires_at_ms} />}>
      {made.warning && <Notice tone="warn">{made.warning}</Notice>}
      <ol className="grid grid-cols-1 gap-4">
        {now.map((command, at) => (
          <ToType key={command.command} command={command} number={at + 1} />
        ))}
      </ol>
      <div className="mt-5 grid grid-cols-1 gap-1.5 border-line border-t pt-4">
        <p className="font-medium">The code alone</p>
        <Code text={made.code} label="One-time code" wrap />
        <p className="text-muted text-sm">
          {status.hosts > 1
            ? `It lets ${status.hosts} machines join as yours. Give it only to people you trust.`
            : "It works once. Whoever uses it lends a machine in your name."}{" "}
          The hub does not show it again; this browser tab remembers it until it is used.
        </p>
      </div>
      {later.length > 0 && (
        <ul className="mt-5 grid grid-cols-1 gap-4 border-line border-t pt-4">
          {later.map((command) => (
            <ToType key={command.command} command={command} />
          ))}
        </ul>
      )}
    </Card>
  );
}

function ToType({ command, number }: { command: Schemas["JoinCommand"]; number?: number }) {
  return (
    <li className="grid grid-cols-1 gap-1.5">
      <p className="flex gap-2">
        {number && <span className="num text-muted">{number}.</span>} {command.title}
      </p>
      <Code text={command.command} label={number ? `Command ${number}` : command.title} wrap />
    </li>
  );
}

function CountDown({ untilMs }: { untilMs: number }) {
  const now = useNow(1000);
  const left = untilMs - now;
  if (now === 0) return null;
  return (
    <Badge tone={left < 60_000 ? "warn" : "neutral"}>
      <span role="timer" className="num">
        {left > 0 ? `works for another ${duration(Math.max(left, 1000)).replace(/\.\d+/, "")}` : "ended"}
      </span>
    </Badge>
  );
}

function CodeHidden({ status }: { status: Status }) {
  return (
    <Card title="The code was shown once" aside={<CountDown untilMs={status.expires_at_ms} />}>
      <div className="grid gap-3">
        <p>It still works if you noted it. If not, create another one: an unused code expires and does no harm.</p>
        <ButtonLink href="/nodes/add" className="justify-self-start">
          Create another code
        </ButtonLink>
      </div>
    </Card>
  );
}

function Over({ status }: { status: Status }) {
  const node = status.nodes?.[0];
  return (
    <Card title={status.state === "expired" ? "The code has expired" : "The code has been used"}>
      <div className="grid gap-3">
        <p>{status.sentence}</p>
        <div className="flex flex-wrap gap-2">
          {node && (
            <ButtonLink href={nodeHref(node.node_id)} look="primary">
              To {node.name}
            </ButtonLink>
          )}
          <ButtonLink href="/nodes/add" look={node ? "secondary" : "primary"}>
            {node ? "Add another machine" : "Create a new code"}
          </ButtonLink>
        </div>
      </div>
    </Card>
  );
}

function Checklist({ status }: { status: Status }) {
  const nodes = status.nodes ?? [];
  return (
    <div className="grid min-w-0 gap-5">
      {status.hosts > 1 && <Notice>{status.sentence}</Notice>}
      {nodes.length === 0 ? (
        <Card title="Next steps" note="The list updates by itself; you can leave this page and come back.">
          <JoinSteps steps={status.steps} />
        </Card>
      ) : (
        nodes.map((node) => (
          <Card
            key={node.node_id}
            title={node.name}
            note={
              node.complete ? "It is part of the pool." : "The list updates by itself; you can leave this page and come back."
            }
            aside={
              <ButtonLink small href={nodeHref(node.node_id) as Route}>
                Open the node
              </ButtonLink>
            }
          >
            <JoinSteps steps={node.steps} />
          </Card>
        ))
      )}
    </div>
  );
}
