export { AuditPage as default } from "@/components/audit/audit-page";
