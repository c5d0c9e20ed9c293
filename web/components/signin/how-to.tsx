// How somebody gets a link: words for the first start of a hub, and for everybody who comes later.
import { Code } from "@/components/ui/copy";
import type { HubInfo } from "@/lib/session";

/** Nobody has signed in here yet. */
export function FirstRun({ hub }: { hub: HubInfo }) {
  return (
    <section className="panel grid gap-4 p-6">
      <h1>Welcome to {hub.name}</h1>
      <p>
        This is a ComputePool hub: people lend it their idle machines, and others run jobs on them. It has just been set up, and
        nobody has signed in yet.
      </p>
      <div className="grid gap-2">
        <p>
          <strong>First</strong>, make the administrator’s link, on the hub's machine and as the hub's user. <code>pool up</code>{" "}
          prints one, too, when it starts.
        </p>
        <Code label="Command" text="pool hub link" />
        <p className="text-muted text-sm">Open the link it prints, or paste it below. It works once, within 15 minutes.</p>
      </div>
    </section>
  );
}

export function HowToGetIn({ hub }: { hub: HubInfo }) {
  return (
    <details className="text-muted">
      <summary className="w-fit text-ink">How do I get a link?</summary>
      <div className="mt-3 grid gap-3">
        {hub.signin_hint && <p>{hub.signin_hint}</p>}
        <p>
          <strong className="text-ink">You have no account:</strong> ask an administrator of this hub. They create one under Admin
          → Accounts and send you its link.
        </p>
        <p>
          <strong className="text-ink">You administer this hub:</strong> on its machine, as the hub's user:
        </p>
        <Code label="Command for the administrator's link" text="pool hub link" />
        <p>
          <strong className="text-ink">On the command line</strong> the same link signs in, too:
        </p>
        <Code label="Command to sign in" text="pool login 'LINK'" />
      </div>
    </details>
  );
}
