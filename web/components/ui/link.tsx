import NextLink, { type LinkProps } from "next/link";
import type { ComponentProps } from "react";

/** Next's own, which would fetch ahead what every link on the screen leads to: a list of jobs is a hundred requests. */
export function Link<R extends string>(props: Omit<ComponentProps<"a">, keyof LinkProps<R>> & LinkProps<R>) {
  return <NextLink prefetch={false} {...props} />;
}
