// For a minute, 200 clients connect, join, stay for two seconds, leave, and
// reconnect at once.
import exec from 'k6/execution';
import { sleep } from 'k6';
import { ms, patience, session, span, stats, userName } from './chat.js';

const clients = 200;
const visit = ms(2);

export function churn(seconds) {
  return {
    scenarios: {
      churn: { executor: 'constant-vus', vus: clients, duration: span(ms(seconds)), gracefulStop: span(patience) },
    },
    thresholds: { errors: ['count==0'] },
    summaryTrendStats: stats,
  };
}

export const options = churn(60);

export default function () {
  const n = exec.scenario.iterationInTest;
  if (n < clients) {
    sleep((visit * n) / clients / 1000); // otherwise all clients would come and go at the same time
  }
  session(userName(exec.vu.idInTest), 1, (client) => client.at(Date.now() + visit, client.leave));
}
