"use client";
import { Suspense } from "react";
import { GroupList } from "@/components/groups/group-list";
import { GroupPage } from "@/components/groups/group-page";
import { SkeletonRows } from "@/components/ui/states";
import { useParam } from "@/lib/use-params";

function Groups() {
  const [id] = useParam("id");
  return id ? <GroupPage key={id} id={id} /> : <GroupList />;
}

export default function GroupsPage() {
  return (
    <Suspense fallback={<SkeletonRows />}>
      <Groups />
    </Suspense>
  );
}
