"use client";
import { Paperclip } from "lucide-react";
import type { Route } from "next";
import { useMemo } from "react";
import { writeValue } from "@/components/jobs/wire-value";
import { StateBadge } from "@/components/ui/badge";
import { type Column, DataTable } from "@/components/ui/data-table";
import { Link } from "@/components/ui/link";
import { Empty, QueryView, SkeletonRows } from "@/components/ui/states";
import { Ago } from "@/components/ui/values";
import { $api, hubUrl } from "@/lib/api/client";
import { bytes, count } from "@/lib/format";
import { useRows } from "@/lib/paging";
import { type GroupItem, useItems, type Which } from "./use-items";

const NOTHING: Record<Which, string> = {
  all: "The group is empty.",
  results: "No results yet.",
  failures: "No failures.",
  waiting: "Nothing is pending.",
};

const ROW = 52;
const HEAD = 38;
const HIGH = 544;

/** `about`: how many there are, for the space that is kept free until they come. */
export function ItemTable({ groupId, which, about }: { groupId: string; which: Which; about: number }) {
  const items = useItems(groupId, which);
  const { rows, more } = useRows(items, (page) => page.items);
  const why = useWhy(groupId, which === "waiting");
  const columns = useMemo(() => columnsOf(which, why), [which, why]);
  return (
    <QueryView query={items} skeleton={<Space rows={about} />}>
      {() => (
        <DataTable
          label={`Items: ${which}`}
          columns={columns}
          rows={rows}
          rowKey={(item) => item.job_id ?? `key ${item.key}`}
          rowHeight={ROW}
          height={`${HIGH}px`}
          more={more}
          empty={<Empty title={NOTHING[which]} />}
        />
      )}
    </QueryView>
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

/** Of the first ones that wait the hub knows exactly why, with numbers. */
function useWhy(groupId: string, wanted: boolean): Map<string, string> {
  const path = { group_id: groupId };
  const summary = $api.useQuery("get", "/groups/{group_id}/summary", { params: { path } }, { enabled: wanted });
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
    title: "Why",
    width: "minmax(10rem,3fr)",
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
    width: "minmax(6rem,2fr)",
    from: "sm",
    cell: (item) => <Result item={item} />,
  };
  const files: Column<GroupItem> = {
    key: "files",
    title: "Files",
    width: "minmax(8rem,2fr)",
    cell: (item) => <Files item={item} />,
  };
  const when: Column<GroupItem> = {
    key: "when",
    title: "Ended",
    width: "7rem",
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
  width: "minmax(8rem,1fr)",
  cell: (item) => {
    const name = item.key ?? item.job_id ?? "";
    const many = item.bundled > 1 ? ` · ${count(item.bundled)} items` : "";
    return (
      <span title={name}>
        {item.job_id ? (
          <Link href={`/jobs?id=${encodeURIComponent(item.job_id)}` as Route} className="link font-mono text-sm">
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
        large
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
      <Paperclip size={14} aria-hidden="true" className="shrink-0 text-muted" />
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
