// 200, 500 and 1000 clients send five chats a second each: 0.2, 1.2 and 5
// million deliveries a second.
import { lasting, ms } from './chat.js';

const step = (clients) => ({ clients, rate: 5, ramp: 10, hold: 20, down: 10, sample: 100 });
// The pause after a step, in which k6 reads the messages that it has not read
// yet.
const pause = ms(30);

const load = lasting([step(200), step(500), step(1000)], pause, {
  errors: ['count==0'],
  // k6 reads some 100,000 messages a second on a core. If more are to be
  // delivered, the share describes k6 and not the server: so the steps after
  // the first have no bound, and the figure is only shown.
  'delivery_share{scenario:clients_200}': ['avg>=0.99'],
  'delivery_share{scenario:clients_500}': ['avg>=0'],
  'delivery_share{scenario:clients_1000}': ['avg>=0'],
});

export const options = load.options;
export default load.run;
