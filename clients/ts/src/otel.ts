// `import "tidewire/otel"` gives the client what it does with OpenTelemetry, if the program has its API. It depends on nothing of it.
import { hooks, type Headers } from "./hooks.js";

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

// The headers get the trace of the caller.
hooks.sending_ = (headers) => {
  const { context, propagation } = api() ?? {};
  if (!context || !propagation) return headers;
  const carrier: Headers = {};
  propagation.inject(context.active(), carrier, { set: (to, key, value) => (to[key] = value) });
  return Object.keys(carrier).length ? { ...carrier, ...headers } : headers;
};

// A span for each message, linked to that of its sender.
hooks.working_ = (verb, object, message) => {
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
    run_: <R>(fn: () => R) => context.with(inside, fn) as R,
    end_(error) {
      if (error !== undefined) {
        span.recordException?.(error);
        span.setStatus?.({ code: 2 });
      }
      span.end();
    },
  };
};
