/** Totals that were computed before, by the number of items. */
export const totals = new Map<number, number>();
