/** The headers of a message. */
export type Headers = Record<string, unknown>;

/** The parts of OpenTelemetry's API that are used, as it registers itself. */
interface Api {
  context?: { active(): Context; with(context: Context, fn: () => unknown): unknown };
  propagation?: {
    inject(context: Context, carrier: object, setter: { set(carrier: any, key: string, value: string): void }): void;
    extract(context: Context, carrier: object, getter: { get(carrier: any, key: string): unknown; keys(carrier: any): string[] }): Context;
  };
  trace?: { getTracer(name: string): { startSpan(name: string, options: object, context: Context): Span } };
}

interface Context {
  getValue(key: symbol): unknown;
  setValue(key: symbol, value: unknown): Context;
}

interface Span {
  spanContext?(): unknown;
  recordException?(error: unknown): void;
  setStatus?(status: { code: number }): void;
  end(): void;
}

const spanKey = Symbol.for("OpenTelemetry Context Key SPAN");
const api = () => (globalThis as unknown as Record<symbol, Api | undefined>)[Symbol.for("opentelemetry.js.api.1")];

/** The headers with the trace of the caller, if the program has OpenTelemetry. */
export function traced(headers: Headers | undefined): Headers | undefined {
  const { context, propagation } = api() ?? {};
  if (!context || !propagation) return headers;
  const carrier: Headers = {};
  propagation.inject(context.active(), carrier, { set: (to, key, value) => (to[key] = value) });
  return Object.keys(carrier).length ? { ...carrier, ...headers } : headers;
}

/** The work on one message. */
export interface Work {
  /** Runs fn as a part of this work. */
  run<R>(fn: () => R): R;
  end(error?: unknown): void;
}

/** Begins a span for a message, linked to that of its sender; or undefined without OpenTelemetry. */
export function working(verb: string, object: string, message: { position: number; headers?: Headers | undefined }): Work | undefined {
  const { context, propagation, trace } = api() ?? {};
  if (!context || !trace) return undefined;
  const active = context.active();
  const getter = { get: (from: any, key: string) => from[key], keys: (from: any) => Object.keys(from) };
  const sender = propagation?.extract(active, message.headers ?? {}, getter).getValue(spanKey) as Span | undefined;
  const linked = sender?.spanContext?.();
  const span = trace.getTracer("tidewire").startSpan(
    `${verb} ${object}`,
    {
      kind: 4, // a consumer
      links: linked ? [{ context: linked }] : [],
      attributes: {
        "messaging.system": "tidewire",
        "messaging.operation.type": verb,
        "messaging.destination.name": object,
        "messaging.message.id": String(message.position),
      },
    },
    active,
  );
  const inside = active.setValue(spanKey, span);
  return {
    run: <R>(fn: () => R) => context.with(inside, fn) as R,
    end(error) {
      if (error !== undefined) {
        span.recordException?.(error);
        span.setStatus?.({ code: 2 });
      }
      span.end();
    },
  };
}
