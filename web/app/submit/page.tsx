export { SubmitPage as default } from "@/components/submit/submit-page";
