"use client";
// Shows pictures, text and tables of a job, never a file as a page of its own.
import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Failure, Skeleton } from "@/components/ui/states";
import { errorToShow } from "@/lib/api/problem";
import { bytes } from "@/lib/format";
import { csvRows, HEAD_BYTES, type Preview, previewOf } from "./artifacts";

export interface FileRef {
  name: string;
  digest: string;
  size: number;
}

const TABLE = { rows: 51, columns: 30 };

export function FilePreview({ file }: { file: FileRef }) {
  const query = useQuery({
    queryKey: ["preview", file.digest],
    queryFn: ({ signal }) => previewOf(file, signal),
    staleTime: "static", // a digest always means the same bytes
    gcTime: 60_000,
  });
  if (query.data) return <Shown preview={query.data} file={file} />;
  const error = errorToShow(query);
  if (error) return <Failure error={error} retry={() => void query.refetch()} />;
  return <Skeleton className="h-24" />;
}

function Shown({ preview, file }: { preview: Preview; file: FileRef }) {
  switch (preview.kind) {
    case "picture":
      return <Picture blob={preview.blob} name={file.name} />;
    case "text":
      return <Text text={preview.text} cut={preview.cut} file={file} />;
    case "sealed":
      return (
        <p className="text-muted">
          This file is sealed: only your key opens it. Download it, then: <code>pool seal open FILE --out PLAIN</code>
        </p>
      );
    case "empty":
      return <p className="text-muted">The file is empty.</p>;
    case "too-large":
      return <p className="text-muted">A picture of {bytes(file.size)} is too large for a preview. Download it.</p>;
    case "binary":
      return <p className="text-muted">This file is neither text nor a supported image. Download it to open it.</p>;
  }
}

function Picture({ blob, name }: { blob: Blob; name: string }) {
  const [url, setUrl] = useState("");
  const [broken, setBroken] = useState(false);
  useEffect(() => {
    const made = URL.createObjectURL(blob);
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [blob]);
  if (broken) return <p className="text-muted">The image is damaged, or this browser does not support it.</p>;
  if (!url) return <Skeleton className="h-24" />;
  return (
    // biome-ignore lint/performance/noImgElement: a blob needs no optimiser
    <img
      src={url}
      alt={name}
      onError={() => setBroken(true)}
      className="max-h-96 max-w-full rounded-control border border-line bg-[repeating-conic-gradient(var(--color-sunken)_0_25%,var(--color-surface)_0_50%)] bg-size-[16px_16px] object-contain"
    />
  );
}

function Text({ text, cut, file }: { text: string; cut: boolean; file: FileRef }) {
  const ending = /\.([a-z]+)$/i.exec(file.name)?.[1]?.toLowerCase();
  const rows = ending === "csv" || ending === "tsv" ? csvRows(text, TABLE) : null;
  return (
    <div className="grid grid-cols-1 gap-2">
      {rows ? (
        <Table rows={rows} name={file.name} />
      ) : (
        <Plain text={ending === "json" && !cut ? pretty(text) : text} name={file.name} />
      )}
      {(cut || (rows && rows.length >= TABLE.rows)) && (
        <p className="text-muted text-sm">
          {rows ? "The first rows" : `The first ${bytes(HEAD_BYTES)} of ${bytes(file.size)}`}. The download has all of it.
        </p>
      )}
    </div>
  );
}

export function Plain({ text, name }: { text: string; name: string }) {
  return (
    <pre
      role="region"
      tabIndex={0}
      aria-label={`Content of ${name}`}
      className="max-h-96 overflow-auto whitespace-pre-wrap break-words rounded-control border border-line bg-sunken px-3.5 py-2.5 font-mono text-sm"
    >
      {text}
    </pre>
  );
}

function Table({ rows, name }: { rows: string[][]; name: string }) {
  const [head = [], ...body] = rows;
  return (
    <div
      role="region"
      tabIndex={0}
      aria-label={`Content of ${name}`}
      className="max-h-96 w-fit max-w-full overflow-auto rounded-control border border-line"
    >
      <table className="text-left text-sm">
        <thead>
          <tr>
            {head.map((cell, index) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: columns have no other name
              <th key={index} scope="col" className="sticky top-0 whitespace-nowrap bg-sunken px-3 py-1.5 font-medium">
                <bdi>{cell || " "}</bdi>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {body.map((row, at) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: rows have no other name
            <tr key={at} className="border-line/70 border-t">
              {row.map((cell, index) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: columns have no other name
                <td key={index} className="max-w-80 truncate px-3 py-1" title={cell}>
                  <bdi>{cell}</bdi>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
