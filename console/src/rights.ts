// What the user may do, so that the console offers nothing else.
import { ask, Failure } from "./api.js";
import { useLoad } from "./parts/load.js";
import { closed } from "./session.js";

/** A right as an error names it: "publish stream:orders". */
export type Right = `${string} ${string}`;

/** For each name the refusal, if the user does not have the right. */
export type Refusals<Name extends string> = Partial<Record<Name, Failure>>;

/** Which of these rights the user does not have; undefined while that is not known. In open mode everybody has all. */
export function useRights<Name extends string>(wanted: Record<Name, Right>): Refusals<Name> | undefined {
  const names = Object.keys(wanted) as Name[];
  const { value } = useLoad(async (signal): Promise<Refusals<Name> | undefined> => {
    if (closed.value === undefined) return undefined;
    if (!closed.value) return {};
    const rights = names.map((name) => parsed(wanted[name]));
    const { allowed } = await ask<{ allowed: boolean[] }>("rights", { method: "POST", body: { rights }, signal });
    return Object.fromEntries(names.flatMap((name, i) => (allowed[i] ? [] : [[name, refusal(rights[i]!)]]))) as Refusals<Name>;
  }, [wanted, closed.value]);
  return value;
}

/** The parts of a right. A name may have any characters; there is only one server, so that it has no name. */
export function parsed(right: Right): { verb: string; kind: string; name?: string } {
  const [, verb, kind, name] = right.match(/^(\S+) ([^:]+):([^]*)$/)!;
  return { verb: verb!, kind: kind!, ...(name !== "*" || kind !== "server" ? { name: name! } : {}) };
}

/** The refusal that the server would give. */
const refusal = ({ verb, kind, name }: ReturnType<typeof parsed>) =>
  Object.assign(new Failure(403, "forbidden", "you may not do this"), { verb, kind, object: name });
