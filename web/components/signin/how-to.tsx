// How to get a sign-in link: at the first start of a hub, and later.
import { Code } from "@/components/ui/copy";
import type { HubInfo } from "@/lib/session";

/** Nobody has signed in here yet. */
export function FirstRun({ hub }: { hub: HubInfo }) {
  return (
    <section className="panel grid gap-4 p-6">
      <h1>Welcome to {hub.name}</h1>
      <p>
        This is a ComputePool hub: people lend it their idle machines, and others run jobs on them. It has just been set up, and
        nobody has signed in with a browser yet.
      </p>
      <div className="grid gap-2">
        <p>
          <strong>First</strong>, create the administrator's sign-in link: run this on the hub's machine, as the hub's user.{" "}
          <code>pool up</code> also prints one when it starts.
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
          <strong className="text-ink">You have no account:</strong> ask an administrator of this hub, who can create one under
          Admin → Accounts and send you the link.
        </p>
        <p>
          <strong className="text-ink">You administer this hub:</strong> on its machine, as the hub's user:
        </p>
        <Code label="Command for the administrator's link" text="pool hub link" />
        <p>
          <strong className="text-ink">On the command line</strong>, sign in with the same link:
        </p>
        <Code label="Command to sign in" text="pool login 'LINK'" />
      </div>
    </details>
  );
}
