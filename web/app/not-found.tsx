"use client";
import { ButtonLink } from "@/components/ui/button";
import { Page } from "@/components/ui/page";
import { Empty } from "@/components/ui/states";

export default function NotFound() {
  return (
    <Page title="No such page">
      <Empty title="There is nothing at this address.">
        <ButtonLink href="/" className="justify-self-center">
          Go to the mesh
        </ButtonLink>
      </Empty>
    </Page>
  );
}
