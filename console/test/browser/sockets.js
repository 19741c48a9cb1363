// Connections of other clients, which a page of its own opens: Node has no WebSocket.

/** Opens the page. `connect` opens a connection with a token, sends requests, and waits for as many answers. */
export async function sockets(browser, base) {
  const page = await browser.newPage();
  await page.goto(`${base}/healthz`);
  const connect = (token, requests, path = "/ws") => page.evaluate(([url, first, rest]) => new Promise((resolve, reject) => {
    const socket = new WebSocket(url);
    const all = [...first, ...rest];
    let left = all.length;
    (globalThis.kept ??= []).push(socket);
    socket.onopen = () => all.forEach((request, id) => socket.send(JSON.stringify({ ...request, id })));
    socket.onmessage = ({ data }) => {
      const { id, type } = JSON.parse(data);
      if (id !== undefined && type === "error") reject(new Error(data));
      if (id !== undefined && --left === 0) resolve();
    };
    socket.onclose = ({ code }) => ((globalThis.codes ??= []).push(code), reject(new Error(`closed with ${code}`)));
  }), [base.replace("http", "ws") + path, token ? [{ type: "auth", token }] : [], requests]);
  /** The codes with which connections were closed. */
  const closed = () => page.evaluate(() => globalThis.codes ?? []);
  return { connect, closed };
}
