export { AccountPage as default } from "@/components/account/account-page";
