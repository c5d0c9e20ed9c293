import { Button } from "@/components/ui/button";
import { Code } from "@/components/ui/copy";
import { Notice } from "@/components/ui/states";

/** A secret that the hub keeps no copy of. */
export function OneTimeSecret({ secret, label, use, done }: { secret: string; label: string; use?: string; done: () => void }) {
  return (
    <div className="grid gap-4">
      <Notice tone="warn">Copy it now. It is shown only once.</Notice>
      <Code text={secret} label={label} wrap />
      {use && (
        <div className="grid gap-1.5">
          <p className="text-muted text-sm">For example:</p>
          <Code text={use} label="Example" wrap />
        </div>
      )}
      <div className="flex justify-end">
        <Button look="primary" onClick={done}>
          I have copied it
        </Button>
      </div>
    </div>
  );
}
