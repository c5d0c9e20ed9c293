export { Groups as default } from "@/components/groups/groups";
