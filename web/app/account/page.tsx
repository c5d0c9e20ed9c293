import { Suspense } from "react";
import { AccountPage } from "@/components/account/account-page";

export default function Account() {
  return (
    <Suspense>
      <AccountPage />
    </Suspense>
  );
}
