"use client";
import { Paperclip } from "lucide-react";
import { useMemo } from "react";
import { writeValue } from "@/components/jobs/wire-value";
import { StateBadge } from "@/components/ui/badge";
import { type Column, PagedTable } from "@/components/ui/data-table";
import { Link } from "@/components/ui/link";
import { Empty, SkeletonRows } from "@/components/ui/states";
import { Ago } from "@/components/ui/values";
import { $api, hubUrl } from "@/lib/api/client";
import { bytes, count } from "@/lib/format";
import { jobHref } from "@/lib/links";
import { type GroupItem, useItems, type Which } from "./use-items";

const NOTHING: Record<Which, string> = {
  all: "The group is empty",
  results: "No results yet",
  failures: "No failures",
  waiting: "Nothing is pending",
};

const ROW = 52;
const HEAD = 38;
const HIGH = 544;

/** `about` many rows are expected: space for them is kept free until they arrive. */
export function ItemTable({ groupId, which, about }: { groupId: string; which: Which; about: number }) {
  const items = useItems(groupId, which);
  const why = useWhy(groupId, which === "waiting");
  const columns = useMemo(() => columnsOf(which, why), [which, why]);
  return (
    <PagedTable
      label={`Items: ${which}`}
      query={items}
      rowsOf={(page) => page.items}
      skeleton={<Space rows={about} />}
      columns={columns}
      rowKey={(item) => item.job_id ?? `key ${item.key}`}
      rowHeight={ROW}
      height={`${HIGH}px`}
      empty={<Empty title={NOTHING[which]} />}
    />
  );
}

function Space({ rows }: { rows: number }) {
  const height = rows === 0 ? 172 : Math.min(HIGH, HEAD + rows * ROW);
  return (
    <div className="overflow-hidden" style={{ height }}>
      <SkeletonRows rows={Math.min(12, rows)} />
    </div>
  );
}

/** The hub's detailed reasons, for the first of the waiting items. */
function useWhy(groupId: string, enabled: boolean): Map<string, string> {
  const path = { group_id: groupId };
  const summary = $api.useQuery("get", "/groups/{group_id}/summary", { params: { path } }, { enabled });
  const items = summary.data?.waiting.items;
  return useMemo(() => new Map((items ?? []).map((item) => [item.job_id ?? "", item.sentence])), [items]);
}

function columnsOf(which: Which, why: Map<string, string>): Column<GroupItem>[] {
  const state: Column<GroupItem> = {
    key: "state",
    title: "State",
    width: "8.5rem",
    from: "sm",
    cell: (item) => <StateBadge state={item.state} />,
  };
  const reason: Column<GroupItem> = {
    key: "why",
    title: "Reason",
    width: "10rem",
    grow: 3,
    cell: (item) => {
      const text = lastLine(item.error) || why.get(item.job_id ?? "") || item.sentence;
      return (
        <span className={item.error ? "text-bad" : "text-muted"} title={item.error ?? text}>
          {text}
        </span>
      );
    },
  };
  const result: Column<GroupItem> = {
    key: "result",
    title: "Result",
    width: "6rem",
    grow: 2,
    from: "sm",
    cell: (item) => <Result item={item} />,
  };
  const files: Column<GroupItem> = {
    key: "files",
    title: "Files",
    width: "8rem",
    grow: 2,
    cell: (item) => <Files item={item} />,
  };
  const when: Column<GroupItem> = {
    key: "when",
    title: "Ended",
    width: "7.5rem",
    from: "md",
    right: true,
    cell: (item) => (item.finished_at_ms ? <Ago ms={item.finished_at_ms} /> : <span className="text-muted">–</span>),
  };
  if (which === "results") return [KEY, result, files, COPIES, when];
  if (which === "waiting") return [KEY, state, reason];
  if (which === "failures") return [KEY, state, reason, COPIES, when];
  return [KEY, state, { ...reason, from: "md" }, files, COPIES, when];
}

const KEY: Column<GroupItem> = {
  key: "key",
  title: "Key",
  width: "8rem",
  grow: 1,
  cell: (item) => {
    const name = item.key ?? item.job_id ?? "";
    const many = item.bundled > 1 ? ` · ${count(item.bundled)} items` : "";
    return (
      <span title={name}>
        {item.job_id ? (
          <Link href={jobHref(item.job_id)} className="link font-mono text-sm">
            {name}
          </Link>
        ) : (
          <span className="font-mono text-sm">{name}</span>
        )}
        <span className="text-muted text-sm">{many}</span>
      </span>
    );
  },
};

const COPIES: Column<GroupItem> = {
  key: "copies",
  title: "Duplicates",
  width: "6.5rem",
  from: "xl",
  right: true,
  cell: (item) => (item.duplicates > 0 ? count(item.duplicates) : <span className="text-muted">–</span>),
};

function Result({ item }: { item: GroupItem }) {
  if (item.result_artifact) {
    return (
      <a className="link" href={hubUrl(["artifacts", item.result_artifact])} download={`${item.key ?? item.job_id}.json`}>
        Download
      </a>
    );
  }
  if (item.result === null || item.result === undefined) return <span className="text-muted">–</span>;
  const written = writeValue(item.result.slice(0, 2000))?.text ?? item.result.slice(0, 300);
  return (
    <span className="font-mono text-sm" title={written.slice(0, 1000)}>
      {written.slice(0, 200)}
    </span>
  );
}

function Files({ item }: { item: GroupItem }) {
  const [first, ...others] = item.outputs;
  if (!first) return <span className="text-muted">–</span>;
  return (
    <span className="flex min-w-0 items-center gap-1.5 text-sm">
      <Paperclip className="shrink-0 text-muted" />
      <a
        className="link truncate"
        href={hubUrl(["artifacts", first.digest])}
        download={first.name.split("/").at(-1)}
        title={`${first.name}, ${bytes(first.size)}`}
      >
        {first.name}
      </a>
      {others.length > 0 && <span className="whitespace-nowrap text-muted">+{count(others.length)}</span>}
    </span>
  );
}

function lastLine(text: string | null | undefined): string {
  return (text ?? "").trim().split("\n").at(-1) ?? "";
}
