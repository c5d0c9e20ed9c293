import { Suspense } from "react";
import { AuditPage } from "@/components/audit/audit-page";

export default function Audit() {
  return (
    <Suspense>
      <AuditPage />
    </Suspense>
  );
}
