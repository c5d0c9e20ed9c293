"use client";
// The usual problems of a machine that joins, by step, with the commands that help (docs/node.md).
import type { ReactNode } from "react";
import { Code } from "@/components/ui/copy";
import type { Schemas } from "@/lib/api/client";

type StepName = Schemas["JoinStep"]["name"];

function List({ children }: { children: ReactNode }) {
  return <ul className="grid list-disc gap-2 pl-4">{children}</ul>;
}

const HELP: Record<StepName, ReactNode> = {
  code: (
    <List>
      <li>
        <b>“pool: command not found”</b>: ComputePool is not installed there, or its folder is not on the PATH. It needs Linux and
        Python 3.11 or newer.
      </li>
      <li>
        <b>The hub cannot be reached</b>: that machine must be able to open the hub's address, the one in the command. A hub at
        127.0.0.1 is reached from its own machine only.
      </li>
      <li>
        <b>The code is refused</b>: it was used, has expired, or is incomplete. Create another one.
      </li>
      <li>
        <b>Another mesh version</b>: hub and node must name the same one; the refusal says both.
      </li>
    </List>
  ),
  poll: (
    <List>
      <li>
        <code className="font-mono">pool node start</code> must stay running: in a terminal, or as a service. The machine needs
        outgoing connections only.
      </li>
      <li>The first start builds the file system that jobs see, which takes a while on a slow disk.</li>
      <li>
        Its own status:
        <div className="mt-1.5">
          <Code text="pool node status" label="Command to show its status" />
        </div>
      </li>
    </List>
  ),
  sandbox: (
    <List>
      <li>
        Other people's jobs need bubblewrap or gVisor. On Debian and Ubuntu:
        <div className="mt-1.5">
          <Code text="sudo apt install bubblewrap" label="Command that installs bubblewrap" />
        </div>
      </li>
      <li>Ubuntu 24.04 and newer allow user namespaces only to programs with an AppArmor profile.</li>
      <li>
        This shows what is missing and how to install it:
        <div className="mt-1.5">
          <Code text="pool node doctor" label="Command that finds what is missing" />
        </div>
      </li>
      <li>Then start the node again: it tests its sandboxes at every start.</li>
    </List>
  ),
  hardware: (
    <List>
      <li>The node measures itself while no job runs. A new job interrupts the measurement, and it is repeated later.</li>
      <li>Until then, the hardware that it claims counts. You need not do anything.</li>
    </List>
  ),
  ready: (
    <List>
      <li>A paused or draining node takes no jobs: resume it on its page.</li>
      <li>After three faults in a row, a node gets no jobs for some minutes.</li>
      <li>
        To see why it has no work, run on that machine:
        <div className="mt-1.5">
          <Code text="pool node why" label="Command that says why" />
        </div>
      </li>
    </List>
  ),
  job: (
    <List>
      <li>The node is ready. It gets a job as soon as a suitable one is waiting, which can take a while in a quiet pool.</li>
      <li>
        A new node gets one of other people's jobs at a time, until a few have been verified. Your own jobs are not limited.
      </li>
      <li>If its floor is above the price, it gets none of other people's jobs.</li>
    </List>
  ),
};

export function JoinHelp({ name }: { name: StepName }) {
  return <>{HELP[name]}</>;
}
