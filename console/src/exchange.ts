// The one-time key that tidewire console puts into the address.
import { closed, use, wanted } from "./session.js";

const prefix = "#key=";

/** Exchanges the key in the address for one that this tab keeps. The address loses it first, so that it is not shared or kept with the address. */
export async function exchange(): Promise<void> {
  if (!location.hash.startsWith(prefix)) return;
  const once = location.hash.slice(prefix.length);
  history.replaceState(null, "", location.pathname + location.search);
  const answer = await fetch("/v1/keys/exchange", { method: "POST", headers: { Authorization: `Bearer ${once}` } }).catch(() => undefined);
  if (answer?.ok) return use((await answer.json()).key);
  closed.value = true;
  wanted.value = "used";
}
