import { totals } from "./cache.ts";
import { withTax, type Rate } from "./tax.ts";

export interface Item {
  name: string;
  cents: number;
  count: number;
  rate: Rate;
}

/** A cart holds what somebody is about to buy; nothing in it is reserved. */
export class Cart {
  private items: Item[] = [];

  add(item: Item): void {
    this.items.push(item);
  }

  list(): readonly Item[] {
    return this.items;
  }

  /** What all of it costs, with tax, in cents. */
  total(): number {
    const known = totals.get(this.items.length);
    if (known !== undefined) {
      return known;
    }
    let sum = 0;
    for (const item of this.items) {
      sum += withTax(item.cents, item.rate) * item.count;
    }
    totals.set(this.items.length, sum);
    return sum;
  }
}
