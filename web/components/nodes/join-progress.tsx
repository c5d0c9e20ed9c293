"use client";
import { useEffect } from "react";
import { Badge } from "@/components/ui/badge";
import { ButtonLink } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { Code } from "@/components/ui/copy";
import { Notice, QueryView } from "@/components/ui/states";
import { $api, type Schemas } from "@/lib/api/client";
import { useNow } from "@/lib/clock";
import { duration } from "@/lib/format";
import { nodeHref } from "@/lib/links";
import type { MadeCode } from "./add-node";
import { JoinSteps } from "./join-steps";

type Status = Schemas["JoinStatus"];

const EVERY_MS = 1500;
const DONE_EVERY_MS = 15_000;

const LIVE_NOTE = "This list is updated live. You can leave the page and come back.";

interface JoinProps {
  id: string;
  made: MadeCode | null;
  forget: () => void;
}

/** The second step: the commands, and the progress of the machine. */
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
            {status.open && (made ? <Commands made={made} status={status} /> : <CodeHidden status={status} />)}
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

function Commands({ made, status }: { made: MadeCode; status: Status }) {
  const commands = made.commands ?? [];
  // The commands after the one with the code are for later.
  const joinEnd = commands.findIndex((command) => command.command.includes(made.code)) + 1;
  const [now, later] = [commands.slice(0, joinEnd), commands.slice(joinEnd)];
  return (
    <Card title="Run this on the machine" aside={<CountDown untilMs={status.expires_at_ms} />}>
      {made.warning && <Notice tone="warn">{made.warning}</Notice>}
      <ol className="grid grid-cols-1 gap-4">
        {now.map((command, at) => (
          <Command key={command.command} command={command} number={at + 1} />
        ))}
      </ol>
      <div className="mt-5 grid grid-cols-1 gap-1.5 border-line border-t pt-4">
        <p className="font-medium">The code alone</p>
        <Code text={made.code} label="One-time code" wrap />
        <p className="text-muted text-sm">
          {status.hosts > 1
            ? `It lets ${status.hosts} machines join as yours. Give it only to people you trust.`
            : "It works once. Whoever uses it lends a machine in your name."}{" "}
          The hub does not show it again. This browser tab remembers it until it is used.
        </p>
      </div>
      {later.length > 0 && (
        <ul className="mt-5 grid grid-cols-1 gap-4 border-line border-t pt-4">
          {later.map((command) => (
            <Command key={command.command} command={command} />
          ))}
        </ul>
      )}
    </Card>
  );
}

function Command({ command, number }: { command: Schemas["JoinCommand"]; number?: number }) {
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
        {left > 0 ? `expires in ${duration(Math.max(left, 1000)).replace(/\.\d+/, "")}` : "expired"}
      </span>
    </Badge>
  );
}

function CodeHidden({ status }: { status: Status }) {
  return (
    <Card title="The code was shown once" aside={<CountDown untilMs={status.expires_at_ms} />}>
      <div className="grid gap-3">
        <p>If you wrote it down, it still works. Otherwise create another one; the unused code expires.</p>
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
              Open {node.name}
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
        <Card title="Next steps" note={LIVE_NOTE}>
          <JoinSteps steps={status.steps} />
        </Card>
      ) : (
        nodes.map((node) => (
          <Card
            key={node.node_id}
            title={node.name}
            note={node.complete ? "The node is part of the pool." : LIVE_NOTE}
            aside={
              <ButtonLink small href={nodeHref(node.node_id)}>
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
