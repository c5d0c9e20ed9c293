// How somebody gets a link: words for the first start of a hub, and for everybody who comes later.
import { Code } from "@/components/ui/copy";
import type { HubInfo } from "@/lib/session";

/** Nobody has signed in here yet. */
export function FirstRun({ hub }: { hub: HubInfo }) {
  return (
    <section className="panel grid gap-4 p-6">
      <h1>Welcome to {hub.name}</h1>
      <p>
        This is a hub of ComputePool: people lend their idle machines to it, and others run their jobs on them. It has just been
        set up, and nobody has signed in yet.
      </p>
      <div className="grid gap-2">
        <p>
          <strong>First</strong>, make the administrator’s link, on the machine and as the user that the hub runs as.{" "}
          <code>pool up</code> prints one, too, when it starts.
        </p>
        <Code label="Command" text="pool hub link" />
        <p className="text-muted text-sm">Open the link it prints, or paste it below. It works once, for a quarter of an hour.</p>
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
          <strong className="text-ink">You have no account:</strong> ask an administrator of this hub. They make one under Admin →
          Accounts and send you its link.
        </p>
        <p>
          <strong className="text-ink">You administer this hub:</strong> on its machine, as the user it runs as:
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
