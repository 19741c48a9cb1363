/** A time: a number of milliseconds, or a text such as `"250ms"`, `"5s"`, `"10m"`, `"2h"`, `"7d"`. */
export type Duration = number | string;

/** The longest time of a timer. One that is longer fires at once. */
const longest = 2 ** 31 - 1;

const units: Record<string, number> = { ms: 1, s: 1e3, m: 6e4, h: 36e5, d: 864e5 };

/** The milliseconds of a duration. */
export function milliseconds(duration: Duration): number {
  if (typeof duration === "number") {
    if (duration >= 0 && duration < Infinity) return duration;
  } else {
    const match = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)$/.exec(duration);
    if (match) return Number(match[1]) * units[match[2]!]!;
  }
  throw new RangeError(`${duration} is no duration: give milliseconds or a text like "5s"`);
}

/** An option that counts something. */
export function count(name: string, value: number): number {
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new RangeError(`${name} is ${value}: give a whole number, 1 or more`);
}

/** Runs fn after ms, or earlier if a timer cannot be that long. The timer alone keeps no process alive. */
export function quietTimer(fn: () => void, ms: number): ReturnType<typeof setTimeout> {
  const timer = setTimeout(fn, Math.min(ms, longest));
  (timer as { unref?: () => void }).unref?.();
  return timer;
}

/** A random pause before attempt n, from 0: full jitter. */
export const jitter = (n: number, base = 250, max = 20_000): number => Math.random() * Math.min(max, base * 2 ** n);

/** The pause before attempt n: what the server has told, up to a day, or a random one if that is no time. */
export const pause = (told: unknown, n: number): number => (typeof told === "number" && told >= 1 ? Math.min(told, 864e5) : jitter(n));

export const sleep = (ms: number): Promise<unknown> => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits for a promise, but not longer than ms. */
export async function within(ms: number, promise: Promise<unknown>): Promise<void> {
  let timer: ReturnType<typeof setTimeout>;
  await Promise.race([promise, new Promise((resolve) => (timer = setTimeout(resolve, Math.min(ms, longest))))]);
  clearTimeout(timer!);
}
