export { CreditsPage as default } from "@/components/credits/credits-page";
