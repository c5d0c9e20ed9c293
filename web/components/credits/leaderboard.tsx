"use client";
import { Trophy } from "lucide-react";
import { Badge } from "@/components/ui/badge";
import { ButtonLink } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { Page } from "@/components/ui/page";
import { Segments } from "@/components/ui/segments";
import { Empty, QueryView, SkeletonRows } from "@/components/ui/states";
import { Table } from "@/components/ui/table";
import { Money } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { count, day, duration } from "@/lib/format";
import { useAccount } from "@/lib/session";
import { useParam } from "@/lib/use-params";

const SHOWN = 100;
const ORDERS = [
  { value: "credits", label: "Credits" },
  { value: "hours", label: "Hours" },
];

export function Leaderboard() {
  const [chosen, setBy] = useParam("by");
  const by = chosen === "hours" ? "hours" : "credits";
  const query = $api.useQuery("get", "/credits/leaderboard", { params: { query: { by, limit: SHOWN } } });
  return (
    <Page
      title="Leaderboard"
      note={`The largest lenders and borrowers ${query.data ? `since ${day(query.data.since_ms)}` : "of the last 30 days"}.`}
      actions={<Segments label="Ranked by" value={by} onChange={setBy} options={ORDERS} />}
    >
      <div className="grid items-start gap-5 lg:grid-cols-2">
        <Card title="Lenders" note="Whose machines did the most work for other people">
          <QueryView query={query} skeleton={<SkeletonRows rows={5} />}>
            {(board) => <Ranks leaders={board.lenders} money="Earned" lends />}
          </QueryView>
        </Card>
        <Card title="Borrowers" note="Whose jobs used other people's machines the most">
          <QueryView query={query} skeleton={<SkeletonRows rows={5} />}>
            {(board) => <Ranks leaders={board.borrowers} money="Paid" />}
          </QueryView>
        </Card>
      </div>
    </Page>
  );
}

function Ranks({ leaders, money, lends = false }: { leaders: Schemas["Leader"][]; money: string; lends?: boolean }) {
  const { name } = useAccount();
  if (leaders.length === 0) {
    return (
      <Empty icon={Trophy} title={lends ? "Nobody has earned anything yet" : "Nobody has paid for anything yet"}>
        <div>
          <ButtonLink href={lends ? "/nodes/add" : "/submit"}>
            {lends ? "Be the first: lend a machine" : "Submit a job"}
          </ButtonLink>
        </div>
      </Empty>
    );
  }
  return (
    <>
      <Table
        rows={leaders}
        rowKey={(leader) => leader.name}
        isCurrent={(leader) => leader.name === name}
        columns={[
          {
            title: "Who",
            className: "w-full max-w-0 truncate",
            cell: (leader) => (
              <>
                <span className="num inline-block w-8 pl-2 text-muted">{leader.rank}</span> {leader.name}{" "}
                {leader.name === name && <Badge tone="accent">you</Badge>}
              </>
            ),
          },
          { title: "Jobs", right: true, className: "hidden sm:table-cell", cell: (leader) => count(leader.jobs) },
          { title: "Ran", right: true, className: "whitespace-nowrap", cell: (leader) => duration(leader.ran_ms) },
          { title: money, right: true, cell: (leader) => <Money micro={leader.credits} /> },
        ]}
      />
      {leaders.every((leader) => leader.name !== name) && (
        <p className="border-line border-t pt-3 text-muted text-sm">
          You are not among {leaders.length < SHOWN ? "them" : `the first ${SHOWN}`} yet.
        </p>
      )}
    </>
  );
}
