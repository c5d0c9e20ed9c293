export { Jobs as default } from "@/components/jobs/jobs";
