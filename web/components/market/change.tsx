import { Minus, TrendingDown, TrendingUp } from "lucide-react";

/** A change of price. Neither direction is good or bad for everybody, so it has no colour. */
export function Change({ share }: { share: number | null }) {
  if (share === null) return <span className="text-muted">–</span>;
  const percent = (share * 100).toFixed(1);
  const flat = Math.abs(share) < 0.0005;
  const Icon = flat ? Minus : share > 0 ? TrendingUp : TrendingDown;
  return (
    <span className="num inline-flex items-center gap-1 whitespace-nowrap">
      <Icon className="text-muted" />
      {flat ? "0.0 %" : `${share > 0 ? "+" : "−"}${percent.replace("-", "")} %`}
    </span>
  );
}

export function Sparkline({ values }: { values: number[] }) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const y = (value: number) => (high === low ? 12 : 22 - (20 * (value - low)) / (high - low));
  const points = values.map((value, index) => `${(100 * index) / Math.max(1, values.length - 1)},${y(value)}`).join(" ");
  return (
    <svg viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true" className="h-6 w-full text-series-1">
      <polyline points={points} fill="none" stroke="currentColor" strokeWidth="1.5" vectorEffect="non-scaling-stroke" />
    </svg>
  );
}
