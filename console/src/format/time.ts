// Times in the zone of the browser.

const two = (n: number) => String(n).padStart(2, "0");

const day = (t: Date) => `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())}`;
const clock = (t: Date) => `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`;

/** The time of day of a second since 1970. */
export const second = (time: number): string => clock(new Date(time * 1000));

/** Date and time to the millisecond. A text that is no time stays as it is. */
export function moment(time: string): string {
  const t = new Date(time);
  return Number.isNaN(t.getTime()) ? time : `${day(t)} ${clock(t)}.${String(t.getMilliseconds()).padStart(3, "0")}`;
}

/** Date and time to the minute. */
export function minute(time: string): string {
  const t = new Date(time);
  return Number.isNaN(t.getTime()) ? time : `${day(t)} ${clock(t).slice(0, 5)}`;
}

/** The time of an input of type datetime-local, in RFC 3339, or undefined if there is none. */
export function fromInput(value: string): string | undefined {
  const t = new Date(value);
  return value && !Number.isNaN(t.getTime()) ? t.toISOString() : undefined;
}

/** The text that an input of type datetime-local has for a time, "" if it is none. */
export function toInput(time: string | undefined): string {
  const t = new Date(time ?? "");
  return Number.isNaN(t.getTime()) ? "" : `${day(t)}T${clock(t)}`;
}
