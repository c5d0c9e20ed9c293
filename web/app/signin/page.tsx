export { SignIn as default } from "@/components/signin/sign-in";
