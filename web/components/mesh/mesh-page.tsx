"use client";
import dynamic from "next/dynamic";
import { useRouter } from "next/navigation";
import { useMemo } from "react";
import { ButtonLink } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { Page } from "@/components/ui/page";
import { Empty, Failure, Skeleton, SkeletonRows } from "@/components/ui/states";
import { errorToShow } from "@/lib/api/problem";
import { nodeHref } from "@/lib/links";
import { retryImport } from "@/lib/retry-import";
import { Counters } from "./counters";
import type { MeshNode } from "./families";
import { FilterBar } from "./filter-bar";
import { Legend } from "./legend";
import { NodeTable } from "./node-table";
import { Ticker } from "./ticker";
import { colourTiers, tiersOf } from "./tiers";
import { Unplaced } from "./unplaced";
import { useFilter, useShown } from "./use-filter";
import { useMesh } from "./use-mesh";

const MapSkeleton = () => <Skeleton className="aspect-[2.05] max-h-[48rem] min-h-52 w-full rounded-none" />;
const WorldMap = dynamic(() => retryImport(() => import("./world-map")).then((module) => module.WorldMap), {
  ssr: false,
  loading: MapSkeleton,
});
const NONE: MeshNode[] = [];

export function MeshPage() {
  const { mesh, nodes } = useMesh();
  const router = useRouter();
  const filter = useFilter();
  const all = nodes.data?.nodes ?? NONE;
  const shown = useShown(all, filter);
  useMemo(() => colourTiers(tiersOf(all)), [all]);
  const open = (id: string) => router.push(nodeHref(id));
  const error = errorToShow(nodes);
  if (!nodes.data && error) {
    return (
      <Page title="Mesh">
        <Failure error={error} retry={() => void nodes.refetch()} />
      </Page>
    );
  }
  return (
    <Page title="Mesh" note="The machines that are online, and what they are doing.">
      <Counters mesh={mesh.data} />
      <div className="grid min-w-0 gap-5 xl:grid-cols-[minmax(0,1fr)_23rem]">
        <Card title="Map of the nodes" note="Positions are the regions that owners state, not IP addresses." flush>
          <FilterBar nodes={all} shown={shown.length} filter={filter} />
          <div className="border-line border-y bg-sea">
            {nodes.data ? (
              <WorldMap nodes={shown} onOpen={open}>
                {all.length === 0 && <NobodyHere />}
              </WorldMap>
            ) : (
              <MapSkeleton />
            )}
          </div>
          <Legend nodes={shown} />
        </Card>
        <div className="flex min-w-0 flex-col gap-5">
          <Ticker />
          <Unplaced nodes={shown} />
        </div>
      </div>
      <Card title="Nodes" note="The same nodes as on the map" flush>
        {nodes.data ? (
          all.length > 0 ? (
            <NodeTable nodes={shown} onOpen={open} />
          ) : (
            <Empty title="No node is online">Add a machine, and it appears here and on the map as soon as it connects.</Empty>
          )
        ) : (
          <SkeletonRows rows={8} />
        )}
      </Card>
    </Page>
  );
}

function NobodyHere() {
  return (
    <div className="panel grid max-w-sm justify-items-center gap-3 px-6 py-5 text-center shadow-lg">
      <p className="font-medium">No node is online yet</p>
      <p className="text-muted">A pool starts with one machine, such as yours.</p>
      <ButtonLink href="/nodes/add" look="primary">
        Add a node
      </ButtonLink>
    </div>
  );
}
