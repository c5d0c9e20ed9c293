import { Skeleton } from "@/components/ui/states";

/** In the size of what comes: a heading, a line of filters or facts, and a large panel. */
export function PageSkeleton() {
  return (
    <div role="status" aria-label="Loading" className="mx-auto grid max-w-[120rem] gap-5 px-4 py-5 sm:px-6 lg:py-7">
      <Skeleton className="h-9 w-56" />
      <Skeleton className="h-24" />
      <Skeleton className="h-[32rem]" />
    </div>
  );
}
