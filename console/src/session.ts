// The user who is signed in, and the one client that this page has.
import { computed, signal } from "@preact/signals";
import { connect, SignedOut, type State, type Tidewire } from "tidewire";

const name = "tidewire.token";

/** The token or API key of the user, "" without one. It stays in this tab. */
export const token = signal(sessionStorage.getItem(name) ?? "");
/** Whether the server wants a token, or has refused the one that it got, or the one-time key of the address. */
export const wanted = signal<"" | "missing" | "refused" | "used">("");
/** Whether the server asks for tokens at all (closed mode); undefined while that is not known. */
export const closed = signal<boolean | undefined>(undefined);
/** The state of the WebSocket. It is idle until something needs it. */
export const socket = signal<State>({ name: "idle" });
/** Whether the last request by HTTP was answered. */
export const answered = signal(true);
/** Rises when another user signs in: what was read before belongs to somebody else. */
export const user = signal(0);

let made: Tidewire | undefined;

/** The client, which connects when it is first used. */
export function client(): Tidewire {
  if (made) return made;
  const source = ({ refused }: { refused: boolean }) => {
    if (!refused) return token.value;
    refuse();
    throw new SignedOut();
  };
  made = connect("/ws", token.value ? { token: source } : {});
  made.on("state", (state) => void (socket.value = state));
  made.on("error", (error) => console.warn(error));
  return made;
}

/** Takes notice that the server wants a token, or another one. */
export function refuse(): void {
  closed.value = true;
  wanted.value = token.value ? "refused" : wanted.value || "missing";
}

/** Begins to use a token, or none. */
export function use(next: string): void {
  if (next) sessionStorage.setItem(name, next);
  else sessionStorage.removeItem(name);
  token.value = next;
  wanted.value = "";
  void made?.close();
  made = undefined;
  socket.value = { name: "idle" };
  user.value++;
}

/** The state of the connection, in words. */
export const connection = computed(() => {
  const state = socket.value;
  if (!answered.value) return { good: false, text: "No answer from the server. Trying again." };
  if (state.name === "waiting") return { good: false, text: "Connection lost. Trying again." };
  if (state.name === "connecting") return { good: true, text: "Connecting" };
  return { good: true, text: state.name === "connected" ? "Connected" : "Ready" };
});
