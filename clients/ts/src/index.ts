/// <reference lib="esnext.disposable" preserve="true" />
export { connect, Tidewire, type Options, type ClientEvents } from "./client.js";
export type { State, SocketClass, Socket } from "./connection.js";
export type { TokenSource } from "./token.js";
export type { CallOptions } from "./request.js";
export type { Duration } from "./duration.js";
export { bytes, json, text, type Codec, type Schema, type StandardResult, type StandardSchema, type Typed } from "./codec.js";
export type { Headers } from "./hooks.js";
export { Message } from "./message.js";
export type { Stored } from "./batcher.js";
export { Stream, type MessageOptions, type PublishOptions, type StoredAll } from "./stream.js";
export { Feed } from "./feed.js";
export { Page, Subscription, type Gap, type SubscribeOptions } from "./subscription.js";
export { Queue, type Enqueued, type EnqueueOptions } from "./queue.js";
export { Dead, Job, Retry } from "./job.js";
export { Worker, type Outcome, type WorkOptions } from "./worker.js";
export { Room, RoomEntry, type Chat, type JoinOptions, type RoomEvents } from "./room.js";
export { Events, EventSubscription } from "./events.js";
export type {
  AppendOptions, Appended, Condition, Decided, DecideOptions, FollowOptions, NewEvent, Projection, Projections, QueryOptions, StoredEvent,
} from "./events.js";
export { QueryBuilder, tagged, typed, type Query, type QueryItem } from "./query.js";
export {
  Closed, Conflict, Fenced, Forbidden, HistoryLost, InvalidMessage, LeaseLost, MessageTooLarge, NotFound, OutcomeUnknown, SignedOut, TidewireError, Timeout, TooBig, TooOld,
} from "./errors.js";
