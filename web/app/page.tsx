export { MeshPage as default } from "@/components/mesh/mesh-page";
