"use client";
import { ButtonLink } from "@/components/ui/button";
import { Card } from "@/components/ui/card";

export function MarketActions() {
  return (
    <Card title="What you can do">
      <div className="grid gap-5">
        <div className="grid justify-items-start gap-2">
          <h3>Lend a machine</h3>
          <p className="text-muted">
            Set a floor. Below it, your node takes no jobs from other people; above it, you earn the spot price less the fee.
          </p>
          <ButtonLink href="/nodes?mine=true" small>
            Set a floor
          </ButtonLink>
        </div>
        <div className="grid justify-items-start gap-2">
          <h3>Run jobs</h3>
          <p className="text-muted">Get a quote and set a maximum price. The price of a job is fixed when a node takes it.</p>
          <ButtonLink href="/submit" small>
            Get a quote
          </ButtonLink>
        </div>
      </div>
    </Card>
  );
}
