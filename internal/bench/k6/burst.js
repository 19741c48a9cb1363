// Raises the number of clients from 0 to 1000 in ten seconds. Each joins, sends
// one chat, stays for five seconds, and reconnects until all are connected;
// then all stay for five seconds and leave within five.
import exec from 'k6/execution';
import { sleep } from 'k6';
import { ms, patience, session, span, stats, userName } from './chat.js';

const clients = 1000;
const ramp = ms(10);
const hold = ms(5);
const down = ms(5);
const visit = ms(5);

export const options = {
  scenarios: {
    burst: {
      executor: 'ramping-vus',
      stages: [
        { duration: span(ramp), target: clients },
        { duration: span(hold), target: clients },
        { duration: span(down), target: 0 },
      ],
      gracefulRampDown: span(patience),
      gracefulStop: span(patience),
    },
  },
  thresholds: { errors: ['count==0'] },
  summaryTrendStats: stats,
};

let came; // when this client first connected, since the start

export default function () {
  const start = exec.scenario.startTime;
  const now = Date.now() - start;
  came ??= now;
  // k6 stops the clients that came last first. A client must have left before
  // that.
  const end = ramp + hold + down * Math.max(0, 1 - came / ramp);
  if (now >= end) {
    sleep((ramp + hold + down - now) / 1000);
    return;
  }
  session(userName(exec.vu.idInTest), 10, (client) => {
    client.say();
    const leaves = Date.now() - start + visit;
    client.at(start + (leaves < ramp ? leaves : end), client.leave);
  });
}
