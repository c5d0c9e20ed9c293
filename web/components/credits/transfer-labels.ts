export const TRANSFERS: Record<string, string> = {
  hold: "on hold",
  pay: "paid for jobs",
  fee: "hub's fee",
  refund: "refunded",
  take_back: "taken back",
  mature: "earnings matured",
  grant: "first credits",
  top_up: "top-up",
  payout_reserve: "payout under way",
  payout_paid: "paid out",
  payout_return: "payout returned",
};
