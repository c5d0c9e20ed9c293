"use client";
// A link's code is exchanged for a session when somebody presses the button, not when a program previews the link.
import { useSearchParams } from "next/navigation";
import { type ReactNode, useEffect, useState } from "react";
import { Mark } from "@/components/shell/mark";
import { ThemeSwitch } from "@/components/shell/theme-switch";
import { Button } from "@/components/ui/button";
import { TextField } from "@/components/ui/field";
import { Failure, Notice, Skeleton } from "@/components/ui/states";
import { $api } from "@/lib/api/client";
import { asProblem } from "@/lib/api/problem";
import { pluralize } from "@/lib/format";
import { codeIn, ownAddress } from "@/lib/own-path";
import { type Account, type HubInfo, useSession } from "@/lib/session";
import { FirstRun, HowToGetIn } from "./how-to";

export function SignIn() {
  const { hub, account, error, retry } = useSession();
  const code = useSearchParams().get("code") ?? "";
  useEffect(() => {
    document.title = hub ? `Sign in · ${hub.name}` : "Sign in";
  }, [hub]);
  return (
    <div className="mx-auto flex min-h-dvh max-w-xl flex-col justify-center gap-5 px-4 py-10">
      <header className="flex items-center gap-3">
        <Mark />
        <span className="min-w-0 truncate font-semibold text-lg">{hub?.name ?? "ComputePool"}</span>
        <span className="ml-auto">
          <ThemeSwitch />
        </span>
      </header>
      {hub ? (
        <SignInPanels hub={hub} account={account ?? null} code={code} />
      ) : error ? (
        <Panel title="Sign in">
          <Failure error={error} retry={retry} />
        </Panel>
      ) : (
        <Panel title="Sign in">
          <div role="status" aria-label="Loading" className="grid gap-4">
            <Skeleton />
            <Skeleton className="h-10" />
          </div>
        </Panel>
      )}
      {hub && (
        <p className="text-center text-muted text-sm">
          {hub.nodes_online} of {pluralize(hub.nodes, "node")} online · ComputePool {hub.version}
        </p>
      )}
    </div>
  );
}

function SignInPanels({ hub, account, code }: { hub: HubInfo; account: Account | null; code: string }) {
  if (code) {
    return (
      <Panel title={`Sign in to ${hub.name}`}>
        {account && <SignedInAs account={account} other />}
        <LinkForm code={code} />
      </Panel>
    );
  }
  if (account) {
    return (
      <Panel title="You are signed in">
        <SignedInAs account={account} />
      </Panel>
    );
  }
  return (
    <>
      {hub.setup && <FirstRun hub={hub} />}
      <Panel title={hub.setup ? "Then sign in" : `Sign in to ${hub.name}`} second={hub.setup}>
        <CodeForm />
        {!hub.setup && <HowToGetIn hub={hub} />}
      </Panel>
    </>
  );
}

function Panel({ title, second = false, children }: { title: string; second?: boolean | undefined; children: ReactNode }) {
  return (
    <section className="panel grid gap-4 p-6">
      {second ? <h2>{title}</h2> : <h1>{title}</h1>}
      {children}
    </section>
  );
}

/** Signing in reloads the page, so that nothing of another account stays in memory. */
function useSignIn() {
  const next = useSearchParams().get("next");
  return $api.useMutation("post", "/signin", {
    onSuccess: () => window.location.replace(ownAddress(next, window.location.origin)),
  });
}

function LinkForm({ code }: { code: string }) {
  const signIn = useSignIn();
  const [isManual, setIsManual] = useState(false);
  const go = () => signIn.mutate({ body: { code, kind: "cookie", name: "browser" } });
  if (isManual) return <CodeForm />;
  return (
    <>
      {signIn.error ? (
        <SignInError error={signIn.error} />
      ) : (
        <p className="text-muted">This link works once. Press the button to use it in this browser.</p>
      )}
      <div className="flex flex-wrap gap-2">
        <Button look="primary" pending={signIn.isPending || signIn.isSuccess} onClick={go}>
          {signIn.error ? "Try again" : "Sign in"}
        </Button>
        {signIn.error ? <Button onClick={() => setIsManual(true)}>Use another code</Button> : null}
      </div>
    </>
  );
}

function CodeForm() {
  const [text, setText] = useState("");
  const signIn = useSignIn();
  const code = codeIn(text);
  return (
    <form
      className="grid gap-3"
      onSubmit={(event) => {
        event.preventDefault();
        signIn.mutate({ body: { code, kind: "cookie", name: "browser" } });
      }}
    >
      <TextField
        label="Sign-in code or link"
        placeholder="Paste it here"
        autoComplete="one-time-code"
        spellCheck={false}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      {signIn.error && <SignInError error={signIn.error} />}
      <Button look="primary" type="submit" disabled={code.length < 8} pending={signIn.isPending || signIn.isSuccess}>
        Sign in
      </Button>
    </form>
  );
}

function SignInError({ error }: { error: unknown }) {
  const problem = asProblem(error);
  return (
    <Notice tone="bad">
      {problem.detail}
      {problem.status >= 400 && problem.status < 500 && problem.status !== 429 && (
        <> A link works once and expires soon. If you have already used it, you need a new one.</>
      )}
    </Notice>
  );
}

function SignedInAs({ account, other = false }: { account: Account; other?: boolean }) {
  const next = useSearchParams().get("next");
  const signOut = $api.useMutation("post", "/signout", { onSuccess: () => window.location.reload() });
  return (
    <>
      <p className={other ? "text-muted" : ""}>
        This browser is signed in as <strong>{account.name}</strong> ({account.roles.join(", ")}).
        {other && " This link signs in another account instead."}
      </p>
      <div className="flex flex-wrap gap-2">
        <Button
          look={other ? "secondary" : "primary"}
          onClick={() => window.location.assign(ownAddress(next, window.location.origin))}
        >
          Continue as {account.name}
        </Button>
        {!other && (
          <Button pending={signOut.isPending} onClick={() => signOut.mutate({})}>
            Sign out
          </Button>
        )}
      </div>
      {signOut.error && <SignInError error={signOut.error} />}
    </>
  );
}
