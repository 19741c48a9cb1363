// Names as parts of paths. Browsers take the parts . and .. for steps, also if they are encoded: so these have a ~ before them, here and in /v1.

/** A name as a part of a path. */
export const part = (name: string): string => encodeURIComponent(name.replace(/^~*\.\.?$/, "~$&"));

/** The name of a part that is decoded already. */
export const nameOf = (decoded: string): string => decoded.replace(/^~(~*\.\.?)$/, "$1");
