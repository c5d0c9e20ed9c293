"use client";
import type { Route } from "next";
import { useMemo } from "react";
import { Badge, type Tone } from "@/components/ui/badge";
import { Card } from "@/components/ui/card";
import { type Column, DataTable } from "@/components/ui/data-table";
import { Link } from "@/components/ui/link";
import { Empty, Failure, SkeletonRows } from "@/components/ui/states";
import { Ago } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { errorToShow } from "@/lib/api/problem";
import { shortId } from "@/lib/format";
import { humanize } from "@/lib/labels";
import { PAGED, useRows } from "@/lib/paging";
import { useRole } from "@/lib/session";
import type { NodeView } from "./node-cells";

type Row = Schemas["EvidenceRow"];

/** Every outcome that was counted, newest first, page by page. */
export function NodeEvidence({ node }: { node: NodeView }) {
  const query = $api.useInfiniteQuery(
    "get",
    "/nodes/{node_id}/evidence",
    { params: { path: { node_id: node.id }, query: { limit: 50 } } },
    PAGED,
  );
  const { rows, more } = useRows(query, (page) => page.rows);
  const keys = useMemo(() => keysOf(rows), [rows]);
  const admin = useRole("admin");
  const exact = query.data?.pages[0]?.exact ?? true;
  return (
    <Card
      title="Evidence"
      note={exact ? "What the score is based on, newest first." : "What the score is based on, newest first; times to the hour."}
      flush
    >
      {query.data ? (
        <DataTable
          label="Evidence"
          columns={columns(admin || !exact)}
          rows={rows}
          rowKey={(row) => keys.get(row) ?? ""}
          more={more}
          rowHeight={60}
          height="36rem"
          empty={
            <Empty title="No evidence yet.">
              <p>It begins with the first job that ends on this node.</p>
            </Empty>
          }
        />
      ) : errorToShow(query) ? (
        <Failure error={errorToShow(query)} retry={() => void query.refetch()} />
      ) : (
        <SkeletonRows rows={8} />
      )}
    </Card>
  );
}

/** By what a row says: a place in the list would change for all of them with each new one. Rows that say the same are counted. */
function keysOf(rows: Row[]): Map<Row, string> {
  const seen = new Map<string, number>();
  return new Map(
    rows.map((row) => {
      const says = `${row.at_ms}-${row.job_id}-${row.evidence}`;
      seen.set(says, (seen.get(says) ?? 0) + 1);
      return [row, `${says}-${seen.get(says)}`];
    }),
  );
}

function tone(row: Row): Tone {
  if (row.violation || row.success === false) return "bad";
  return row.success ? "good" : "neutral";
}

/** Others' jobs are theirs to look at; an administrator's, too. */
function columns(all: boolean): Column<Row>[] {
  return [
    {
      key: "what",
      title: "What happened",
      width: "minmax(10rem,3fr)",
      cell: (row) => (
        <>
          <span className="block truncate" title={row.sentence}>
            {row.sentence}
          </span>
          <span className="block truncate text-muted text-sm">
            {[humanize(row.evidence), row.job_kind, row.own && "the owner's job", row.reason && humanize(row.reason)]
              .filter(Boolean)
              .join(" · ")}
          </span>
        </>
      ),
    },
    {
      key: "weight",
      title: "Counts",
      width: "6rem",
      cell: (row) => (
        <Badge tone={tone(row)}>
          {row.violation ? "violation" : row.weight === 0 ? "nothing" : `${row.success === false ? "−" : "+"}${row.weight}`}
        </Badge>
      ),
    },
    {
      key: "job",
      title: "Job",
      width: "8rem",
      from: "sm",
      cell: (row) =>
        row.job_id && (row.own || all) ? (
          <Link href={`/jobs?id=${encodeURIComponent(row.job_id)}` as Route} className="link">
            {shortId(row.job_id)}
          </Link>
        ) : (
          <span className="text-muted">–</span>
        ),
    },
    { key: "when", title: "When", width: "7.5rem", right: true, cell: (row) => <Ago ms={row.at_ms} /> },
  ];
}
