// 100 clients send one chat a second each, for a minute.
import { lasting } from './chat.js';

export function steady(hold) {
  return lasting([{ clients: 100, rate: 1, ramp: 0, hold, down: 0, sample: 10 }], 0, {
    errors: ['count==0'],
    delivery_share: ['min==1', 'max==1'],
    // 9,900 deliveries a second. With several times as many, k6 on the same
    // small machine is itself the bottleneck.
    delivery_latency: ['p(99)<10'],
  });
}

const load = steady(60);
export const options = load.options;
export default load.run;
