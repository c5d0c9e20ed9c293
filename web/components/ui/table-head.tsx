/** The head of a short table that needs no scrolling: words first, then the columns of numbers, at the right. */
export function TableHead({ words, numbers }: { words: string[]; numbers: string[] }) {
  return (
    <thead>
      <tr className="text-muted text-sm">
        {[...words, ...numbers].map((name, place) => (
          <th
            key={name}
            scope="col"
            className={`pb-2 font-normal ${place < words.length ? "pr-3 text-left" : "pl-3 text-right"}`}
          >
            {name}
          </th>
        ))}
      </tr>
    </thead>
  );
}
