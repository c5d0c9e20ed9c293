export { AddNode as default } from "@/components/nodes/add-node";
