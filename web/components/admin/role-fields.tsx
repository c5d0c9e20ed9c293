import { CheckList } from "@/components/ui/field";
import type { Schemas } from "@/lib/api/client";

export type Role = Schemas["RolesRequest"]["roles"][number];

const ROLES: [Role, string][] = [
  ["submitter", "submits jobs and spends credits"],
  ["provider", "lends machines and earns credits"],
  ["admin", "administers this hub"],
];

export function RoleFields({ roles, onRoles }: { roles: Role[]; onRoles: (roles: Role[]) => void }) {
  return <CheckList legend="Roles" options={ROLES} chosen={roles} onChange={onRoles} />;
}
