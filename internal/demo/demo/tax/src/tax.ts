/** Tax rates, in percent. */
export const rates = { reduced: 7, full: 19 } as const;

export type Rate = keyof typeof rates;

/** The amount with tax, rounded to whole cents. */
export function withTax(cents: number, rate: Rate): number {
  return Math.round((cents * (100 + rates[rate])) / 100);
}
