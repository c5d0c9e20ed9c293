export { MarketPage as default } from "@/components/market/market-page";
