import { Suspense } from "react";
import { AdminPage } from "@/components/admin/admin-page";

export default function Admin() {
  return (
    <Suspense>
      <AdminPage />
    </Suspense>
  );
}
