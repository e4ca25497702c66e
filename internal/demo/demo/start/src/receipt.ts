import { Cart } from "./cart.ts";
import { money } from "./format.ts";

const cart = new Cart();
cart.add({ name: "tea", cents: 450, count: 2 });
cart.add({ name: "cup", cents: 1290, count: 1 });

for (const item of cart.list()) {
  console.log(`${item.count} x ${item.name}  ${money(item.cents)}`);
}
console.log(`total  ${money(cart.total())}`);
