import { Suspense } from "react";
import { SignIn } from "@/components/signin/sign-in";

export default function SignInPage() {
  return (
    <Suspense>
      <SignIn />
    </Suspense>
  );
}
