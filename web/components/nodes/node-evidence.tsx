"use client";
import { useMemo } from "react";
import { Badge, type Tone } from "@/components/ui/badge";
import { Card } from "@/components/ui/card";
import { type Column, PagedTable } from "@/components/ui/data-table";
import { Link } from "@/components/ui/link";
import { Empty, SkeletonRows } from "@/components/ui/states";
import { Ago } from "@/components/ui/values";
import { $api, type Schemas } from "@/lib/api/client";
import { shortId } from "@/lib/format";
import { humanize } from "@/lib/labels";
import { jobHref } from "@/lib/links";
import { PAGED } from "@/lib/paging";
import { useRole } from "@/lib/session";
import type { NodeView } from "./node-cells";

type Row = Schemas["EvidenceRow"];

/** Every outcome that was counted. */
export function NodeEvidence({ node }: { node: NodeView }) {
  const query = $api.useInfiniteQuery(
    "get",
    "/nodes/{node_id}/evidence",
    { params: { path: { node_id: node.id }, query: { limit: 50 } } },
    PAGED,
  );
  const keys = useMemo(() => keysOf(query.data?.pages.flatMap((page) => page.rows) ?? []), [query.data]);
  const admin = useRole("admin");
  const exact = query.data?.pages[0]?.exact ?? true;
  return (
    <Card title="Evidence" note={`What the score is based on, newest first.${exact ? "" : " Times are to the hour."}`} flush>
      <PagedTable
        label="Evidence"
        query={query}
        rowsOf={(page) => page.rows}
        skeleton={<SkeletonRows rows={8} />}
        columns={columns(admin || !exact)}
        rowKey={(row) => keys.get(row) ?? ""}
        rowHeight={60}
        height="36rem"
        empty={
          <Empty title="No evidence yet">
            <p>It begins with the first job that ends on this node.</p>
          </Empty>
        }
      />
    </Card>
  );
}

/** By content, as positions change with each new row. Equal rows are numbered. */
function keysOf(rows: Row[]): Map<Row, string> {
  const seen = new Map<string, number>();
  return new Map(
    rows.map((row) => {
      const content = `${row.at_ms}-${row.job_id}-${row.evidence}`;
      seen.set(content, (seen.get(content) ?? 0) + 1);
      return [row, `${content}-${seen.get(content)}`];
    }),
  );
}

function tone(row: Row): Tone {
  if (row.violation || row.success === false) return "bad";
  return row.success ? "good" : "neutral";
}

function columns(linkAll: boolean): Column<Row>[] {
  return [
    {
      key: "what",
      title: "What happened",
      width: "7rem",
      grow: 3,
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
      title: "Weight",
      width: "5.5rem",
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
        row.job_id && (row.own || linkAll) ? (
          <Link href={jobHref(row.job_id)} className="link">
            {shortId(row.job_id)}
          </Link>
        ) : (
          <span className="text-muted">–</span>
        ),
    },
    { key: "when", title: "When", width: "7.5rem", from: "sm", right: true, cell: (row) => <Ago ms={row.at_ms} /> },
  ];
}
