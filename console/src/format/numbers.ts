// Numbers that keep their places: few digits, and the same number of them.

const whole = new Intl.NumberFormat("en");

/** All digits of a whole number. */
export const full = (n: number): string => whole.format(n);

/** A number in at most four digits, such as 999, 1.2k and 34M. */
export function short(n: number): string {
  for (const [least, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
    if (Math.abs(n) >= least * 0.9995) return digits(n / least) + unit;
  }
  return String(Math.round(n));
}

const digits = (n: number) => n.toFixed(Math.abs(n) < 9.95 ? 1 : 0);

/** A number of bytes. */
export function bytes(n: number): string {
  let unit = 0;
  for (; n >= 1023.5 && unit < 5; unit++) n /= 1024;
  return `${unit ? digits(n) : n} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

/** A time in microseconds. */
export function micros(us: number): string {
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 999_500) return `${digits(us / 1000)} ms`;
  return `${digits(us / 1e6)} s`;
}

/** A time in milliseconds, for humans. */
export function span(ms: number): string {
  const seconds = Math.round(ms / 1000);
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}
