import NextLink, { type LinkProps } from "next/link";
import type { ComponentProps } from "react";

/** Next's link without prefetching: a list of jobs would cause a hundred requests. */
export function Link<R extends string>(props: Omit<ComponentProps<"a">, keyof LinkProps<R>> & LinkProps<R>) {
  return <NextLink prefetch={false} {...props} />;
}
