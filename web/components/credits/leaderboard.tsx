"use client";
import { Trophy } from "lucide-react";
import { Badge } from "@/components/ui/badge";
import { ButtonLink } from "@/components/ui/button";
import { Card } from "@/components/ui/card";
import { classes } from "@/components/ui/classes";
import { Page } from "@/components/ui/page";
import { Segments } from "@/components/ui/segments";
import { Empty, QueryView, SkeletonRows } from "@/components/ui/states";
import { Money } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { count, day, duration } from "@/lib/format";
import { useAccount } from "@/lib/session";
import { useParam } from "@/lib/use-params";

type Leader = Schemas["Leader"];

const SHOWN = 100;

export function Leaderboard() {
  const [chosen, setBy] = useParam("by");
  const by = chosen === "hours" ? "hours" : "credits";
  const query = $api.useQuery("get", "/credits/leaderboard", { params: { query: { by, limit: SHOWN } } });
  return (
    <Page
      title="Leaderboard"
      note={
        query.data
          ? `The largest lenders and borrowers since ${day(query.data.since_ms)}.`
          : "The largest lenders and borrowers of the last 30 days."
      }
      actions={
        <Segments
          label="Ranked by"
          value={by}
          onChange={setBy}
          options={[
            { value: "credits", label: "Credits" },
            { value: "hours", label: "Hours" },
          ]}
        />
      }
    >
      <div className="grid items-start gap-5 lg:grid-cols-2">
        <Card flush title="Lenders" note="Whose machines did most for others">
          <QueryView query={query} skeleton={<SkeletonRows rows={5} />}>
            {(board) => <Ranks leaders={board.lenders} money="Earned" lends />}
          </QueryView>
        </Card>
        <Card flush title="Borrowers" note="Whose jobs used most of other people's machines">
          <QueryView query={query} skeleton={<SkeletonRows rows={5} />}>
            {(board) => <Ranks leaders={board.borrowers} money="Paid" />}
          </QueryView>
        </Card>
      </div>
    </Page>
  );
}

function Ranks({ leaders, money, lends = false }: { leaders: Leader[]; money: string; lends?: boolean }) {
  const { name } = useAccount();
  if (leaders.length === 0) {
    return (
      <Empty icon={Trophy} title={lends ? "Nobody has earned anything yet" : "Nobody has paid for anything yet"}>
        <div>
          {lends ? (
            <ButtonLink href="/nodes/add">Be the first: lend a machine</ButtonLink>
          ) : (
            <ButtonLink href="/submit">Submit a job</ButtonLink>
          )}
        </div>
      </Empty>
    );
  }
  const mine = leaders.find((leader) => leader.name === name);
  return (
    <>
      <table className="w-full">
        <thead>
          <tr className="border-line border-b text-muted text-sm">
            <th scope="col" className="whitespace-nowrap py-2 pr-2 pl-5 text-left font-normal">
              Place
            </th>
            <th scope="col" className="w-full px-2 py-2 text-left font-normal">
              Who
            </th>
            <th scope="col" className="hidden px-2 py-2 text-right font-normal sm:table-cell">
              Jobs
            </th>
            <th scope="col" className="px-2 py-2 text-right font-normal">
              Ran
            </th>
            <th scope="col" className="py-2 pr-5 pl-2 text-right font-normal">
              {money}
            </th>
          </tr>
        </thead>
        <tbody>
          {leaders.map((leader) => (
            <tr
              key={leader.name}
              aria-current={leader === mine || undefined}
              className={classes("border-line/70 border-b last:border-b-0", leader === mine && "bg-accent-soft")}
            >
              <td className="num py-2.5 pl-5 text-muted">{leader.rank}</td>
              <th scope="row" className="max-w-0 truncate px-2 text-left font-medium">
                {leader.name} {leader === mine && <Badge tone="accent">you</Badge>}
              </th>
              <td className="num hidden px-2 text-right sm:table-cell">{count(leader.jobs)}</td>
              <td className="num whitespace-nowrap px-2 text-right">{duration(leader.ran_ms)}</td>
              <td className="pr-5 pl-2 text-right">
                <Money micro={leader.credits} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {!mine && (
        <p className="border-line border-t px-5 py-3 text-muted text-sm">
          You are not among {leaders.length < SHOWN ? "them" : `the first ${SHOWN}`} yet.
        </p>
      )}
    </>
  );
}
