import { CheckField } from "@/components/ui/field";
import type { Schemas } from "@/lib/api/client";

export type Role = Schemas["RolesRequest"]["roles"][number];

const ROLES: [Role, string][] = [
  ["submitter", "submits jobs and spends credits"],
  ["provider", "lends machines and earns credits"],
  ["admin", "does everything on this page"],
];

export function asRoles(words: string[]): Role[] {
  return ROLES.map(([role]) => role).filter((role) => words.includes(role));
}

export function RoleFields({ roles, onRoles }: { roles: Role[]; onRoles: (roles: Role[]) => void }) {
  return (
    <fieldset className="grid gap-2">
      <legend className="mb-1 font-medium text-sm">Roles</legend>
      {ROLES.map(([role, words]) => (
        <CheckField
          key={role}
          label={role}
          hint={words}
          checked={roles.includes(role)}
          onChange={(event) => onRoles(event.target.checked ? asRoles([...roles, role]) : roles.filter((kept) => kept !== role))}
        />
      ))}
    </fieldset>
  );
}
