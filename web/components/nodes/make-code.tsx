"use client";
import { Monitor, Server } from "lucide-react";
import type { Route } from "next";
import { type ReactNode, useState } from "react";
import { Button } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { classes } from "@/components/ui/classes";
import { Confirm } from "@/components/ui/dialog";
import { SelectField, TextField } from "@/components/ui/field";
import { Form } from "@/components/ui/form";
import { Link } from "@/components/ui/link";
import { Ago } from "@/components/ui/values";
import { $api, answerOf, client } from "@/lib/api/client";
import { useFields } from "@/lib/use-fields";
import type { MadeCode } from "./add-node";

const HOURS = [
  { value: "3600", label: "an hour" },
  { value: "28800", label: "8 hours" },
  { value: "86400", label: "a day" },
];

/** The first step: one machine, or several with one code. */
export function MakeCode({ onMade }: { onMade: (code: MadeCode) => void }) {
  const [many, setMany] = useState(false);
  const { fields, text } = useFields({ hosts: "5", lifetime_s: "3600" });
  const make = $api.useMutation("post", "/nodes/codes", { onSuccess: onMade });
  const send = () =>
    make.mutate({ body: many ? { hosts: Number(fields.hosts), lifetime_s: Number(fields.lifetime_s) } : { hosts: 1 } });
  return (
    <Card title="What do you want to lend?">
      <Form send={send} sending={make} action="Create a code">
        <fieldset className="grid gap-3 sm:grid-cols-2">
          <legend className="sr-only">How many machines</legend>
          <Kind chosen={!many} choose={() => setMany(false)} icon={<Monitor size={20} />} title="One machine">
            A single-use code for one computer.
          </Kind>
          <Kind chosen={many} choose={() => setMany(true)} icon={<Server size={20} />} title="Several machines">
            One code for a rack, a lab or a small mesh: run the same command on each.
          </Kind>
        </fieldset>
        {many && (
          <div className="grid gap-4 sm:grid-cols-2">
            <TextField label="How many machines" type="number" min={1} max={1000} required {...text("hosts")} />
            <SelectField label="Valid for" options={HOURS} {...text("lifetime_s")} />
          </div>
        )}
      </Form>
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

/** Codes that still work. Those for several machines live for hours. */
export function OpenCodes() {
  const query = $api.useQuery("get", "/nodes/codes");
  const codes = query.data?.codes ?? [];
  if (codes.length === 0) return null;
  return (
    <Card title="Open codes" note="The codes themselves are shown only when they are created.">
      <ul className="divide-y divide-line">
        {codes.map((code) => (
          <li key={code.id} className="flex flex-wrap items-center justify-between gap-x-4 gap-y-2 py-2.5">
            <span>
              <Link href={`/nodes/add?code_id=${encodeURIComponent(code.id)}` as Route} className="link">
                {code.used} of {code.hosts} machines joined
              </Link>
              <span className="text-muted">
                {" "}
                · expires <Ago ms={code.expires_at_ms} />
              </span>
            </span>
            <Confirm
              trigger={(open) => (
                <Button small onClick={open}>
                  Revoke
                </Button>
              )}
              title="Revoke this code?"
              action="Revoke"
              confirm={() => answerOf(client.DELETE("/nodes/codes/{code_id}", { params: { path: { code_id: code.id } } }))}
            >
              No more machines can join with it. Those that joined stay.
            </Confirm>
          </li>
        ))}
      </ul>
    </Card>
  );
}
