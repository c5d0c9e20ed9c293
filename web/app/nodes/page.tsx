export { Nodes as default } from "@/components/nodes/nodes";
