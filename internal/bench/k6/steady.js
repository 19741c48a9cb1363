// 100 clients say one thing a second each, for a minute.
import { lasting } from './chat.js';

export function steady(hold) {
  return lasting([{ clients: 100, rate: 1, ramp: 0, hold, down: 0, sample: 10 }], 0, {
    errors: ['count==0'],
    delivery_share: ['min==1', 'max==1'],
    // 9,900 deliveries a second. Several times that, and k6 on the same small
    // machine is itself what a delivery waits for.
    delivery_latency: ['p(99)<10'],
  });
}

const load = steady(60);
export const options = load.options;
export default load.run;
