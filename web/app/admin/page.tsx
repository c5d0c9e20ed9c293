export { AdminPage as default } from "@/components/admin/admin-page";
