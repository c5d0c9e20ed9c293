import { ArrowLeft } from "lucide-react";
import { Link } from "@/components/ui/link";

export function ToNodes() {
  return (
    <Link href="/nodes" className="mb-1 flex w-fit items-center gap-1.5 text-muted text-sm no-underline hover:text-ink">
      <ArrowLeft size={15} aria-hidden="true" /> Nodes
    </Link>
  );
}
