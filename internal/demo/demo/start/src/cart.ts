export interface Item {
  name: string;
  cents: number;
  count: number;
}

/** A cart holds what somebody is about to buy. */
export class Cart {
  private items: Item[] = [];

  add(item: Item): void {
    this.items.push(item);
  }

  list(): readonly Item[] {
    return this.items;
  }

  /** What all of it costs, in cents. */
  total(): number {
    let sum = 0;
    for (const item of this.items) {
      sum += item.cents * item.count;
    }
    return sum;
  }
}
