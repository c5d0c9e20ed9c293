// Addresses of the pages that show one job, group or node.
import type { Route } from "next";

export const jobHref = (id: string) => `/jobs?id=${encodeURIComponent(id)}` as Route;
export const groupHref = (id: string) => `/groups?id=${encodeURIComponent(id)}` as Route;
export const nodeHref = (id: string) => `/nodes?id=${encodeURIComponent(id)}` as Route;
