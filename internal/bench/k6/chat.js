// What the scenarios share: one session of a chat client, and a load of clients
// that stay for the whole run.
//
//   WS_URL      the server, ws://127.0.0.1:8080/ws unless given
//   TIME_SCALE  factor of every duration: 0.1 to try a scenario
//
// k6/ws holds one connection per virtual user, which is what a chat client is.
// k6/websockets needs twice the CPU per message, keeps what it has not handled
// yet in memory without a bound, and has timers wait after it, so that under
// load chats are not sent when they are due.
import ws from 'k6/ws';
import exec from 'k6/execution';
import { sleep } from 'k6';
import { Counter, Trend } from 'k6/metrics';

const url = __ENV.WS_URL || 'ws://127.0.0.1:8080/ws';
const scale = Number(__ENV.TIME_SCALE || 1);
if (!(scale > 0)) {
  throw new Error(`TIME_SCALE is ${__ENV.TIME_SCALE}: want a number above 0`);
}

// How long a client waits for an answer, not scaled: k6 handles the answer only
// after all chats that it was too slow to read.
export const patience = 120e3;

// Nobody sends chats around a hold: before it all clients have joined, after it
// all chats have arrived. The time is not scaled, since a machine needs it at
// any scale.
const quiet = 1000;

const errorPause = 1000;

const metrics = {
  sent: new Counter('chats_sent'),
  late: new Trend('chat_late', true), // time from when a chat was due to the send: k6's own delay
  deliveries: new Counter('deliveries'),
  missed: new Counter('deliveries_missed'), // skipped because k6 read too slowly, as reported by the server before the leave
  share: new Trend('delivery_share'), // for each client: share of the chats of a hold that arrived
  latency: new Trend('delivery_latency', true), // of a sample
  connect: new Trend('connect_time', true),
  join: new Trend('join_time', true), // from the connect to the confirmation
  errors: new Counter('errors'),
};

export const stats = ['min', 'avg', 'p(50)', 'p(99)', 'max'];

// ms returns scaled seconds in milliseconds, span a time in ms as k6's options
// have it.
export const ms = (seconds) => Math.round(seconds * 1000 * scale);
export const span = (time) => `${time}ms`;

// A chat is recognised by its position in the text, without parsing: otherwise
// k6 would be busy with JSON long before the server is.
const chatBytes = 128;
const inHold = 'h';
const notInHold = 'o';
const chatStart = '{"type":"chat"';
const bare = chat('u00000', '');
const markAt = bare.length - '"}'.length;
const padding = '.'.repeat(chatBytes - bare.length - 1);

function chat(user, text) {
  return JSON.stringify({ type: 'chat', room: 'public', user, ts: Date.now(), text });
}

// Texts that are not JSON have no known type.
function parse(data) {
  try {
    return JSON.parse(data);
  } catch {
    return {};
  }
}

export const userName = (n) => `u${String(n).padStart(5, '0')}`;

// session connects, joins, does what joined(client) sets up, and returns when
// the connection is closed, with the number of chats that belong to a hold. It
// parses and times every sample-th of those.
export function session(user, sample, joined) {
  const began = Date.now();
  let deliveries = 0;
  let held = 0;
  let trouble = '';
  let member = false;
  let leaving = false;

  const fail = (kind, detail) => {
    metrics.errors.add(1, { kind });
    console.error(`${user}: ${kind}: ${detail}`);
  };

  const check = (data) => {
    const { user: from, ts } = parse(data);
    metrics.latency.add(Date.now() - ts);
    if (from === user || data.length !== chatBytes) {
      fail('protocol', `not for ${user}, or not as it was sent: ${data}`);
    }
  };

  const response = ws.connect(url, (socket) => {
    const client = {
      at(time, action) {
        socket.setTimeout(action, Math.max(1, time - Date.now()));
      },
      say(mark = inHold) {
        if (leaving) {
          return;
        }
        socket.send(chat(user, mark + padding));
        metrics.sent.add(1);
      },
      // The server answers by closing. If the client simply disconnected, the
      // server would count an aborted connection.
      leave() {
        leaving = true;
        socket.send('{"type":"leave"}');
        client.at(Date.now() + patience, () => {
          fail('close', 'no answer to the leave');
          socket.close(1000);
        });
      },
    };

    socket.on('open', () => {
      metrics.connect.add(Date.now() - began);
      socket.send(`{"type":"join","room":"public","user":"${user}"}`);
      // The pong confirms the join, since a server handles the messages of a
      // connection in order.
      socket.send(`{"type":"ping","ts":${Date.now()}}`);
      client.at(Date.now() + patience, () => {
        if (!member) {
          fail('join', 'no answer');
          client.leave();
        }
      });
    });

    socket.on('message', (data) => {
      if (data.startsWith(chatStart)) {
        deliveries++;
        if (data[markAt] === inHold && ++held % sample === 0) {
          check(data);
        }
        return;
      }
      const message = parse(data);
      switch (message.type) {
        case 'pong':
          member = true;
          metrics.join.add(Date.now() - began);
          joined(client);
          break;
        case 'ping':
          socket.send('{"type":"pong"}');
          break;
        case 'gap':
          metrics.missed.add(message.missed);
          break;
        default:
          fail('protocol', data);
      }
    });

    socket.on('error', (e) => {
      trouble = e.error();
    });
    socket.on('close', (code) => {
      if (!leaving || code !== 1000) {
        fail('closed', `${code} ${trouble}`);
      }
    });
  });

  if (response.status !== 101) {
    fail('connect', response.error || `status ${response.status}`);
    sleep(errorPause / 1000);
  }
  metrics.deliveries.add(deliveries);
  metrics.errors.add(0); // so that the metric is shown even if there are none
  return held;
}

// lasting returns the options and the clients' function for loads in which all
// clients stay. steps are run one after the other; each is {clients, rate, ramp,
// hold, down, sample}, with times in seconds and rates in chats per second. In
// the hold each client sends the same number of chats, at times fixed in advance
// and spread evenly over the clients.
export function lasting(steps, pause, thresholds) {
  const scenarios = {};
  const loads = {};
  let startTime = 0;
  for (const step of steps) {
    const [ramp, hold, down] = [ms(step.ramp), ms(step.hold), ms(step.down)];
    const name = `clients_${step.clients}`;
    const total = ramp + quiet + hold + quiet + down;
    scenarios[name] = {
      executor: 'per-vu-iterations',
      vus: step.clients,
      startTime: span(startTime),
      maxDuration: span(total + 2 * patience),
      gracefulStop: '0s',
    };
    loads[name] = { ...step, ramp, hold, down };
    startTime += total + pause;
  }
  return {
    options: { scenarios, thresholds, summaryTrendStats: stats },
    run: () => stay(loads[exec.scenario.name]),
  };
}

function stay({ clients, rate, ramp, hold, down, sample }) {
  const n = exec.scenario.iterationInTest; // one iteration for each client: the client's number
  const start = exec.scenario.startTime;
  const rampEnd = start + ramp;
  const holdStart = rampEnd + quiet;
  const holdEnd = holdStart + hold;
  const downStart = holdEnd + quiet;
  const period = 1000 / rate;
  const place = (client) => client / clients;
  const leaves = downStart + down * place(n);
  const chatsInHold = (client) => Math.ceil(hold / period - place(client));

  sleep((ramp * place(n)) / 1000);
  const held = session(userName(n), sample, (client) => {
    const say = (mark, due) => {
      metrics.late.add(Date.now() - due);
      client.say(mark);
    };
    const next = (turn) => {
      const due = holdStart + Math.floor(period * (turn + place(n)));
      client.at(due, () => {
        if (due >= holdStart && due < holdEnd) {
          say(inHold, due);
        } else if (due < rampEnd || (due >= downStart && due < leaves)) {
          say(notInHold, due);
        }
        next(turn + 1);
      });
    };
    next(Math.ceil((Date.now() - holdStart) / period - place(n)));
    client.at(leaves, client.leave);
  });

  let expected = -chatsInHold(n); // a sender does not get its own
  for (let client = 0; client < clients; client++) {
    expected += chatsInHold(client);
  }
  metrics.share.add(held / expected);
}
