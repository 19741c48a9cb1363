package gateway_test

import (
	"context"
	"strings"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// The engine in this file gives the same answers always, with all fields. One that is asked for an object with the name of an error fails with it.

var cannedTime = time.Date(2026, 11, 26, 8, 5, 7, 0, time.UTC)

// cannedError returns the error that a name stands for, or nil.
func cannedError(name string) error {
	for _, e := range engine.Errors {
		if string(e.Code) == name {
			return e
		}
	}
	return nil
}

var cannedMessages = []engine.Message{
	{Position: 1, Key: "k", Headers: []byte(`{"h":1}`), Time: cannedTime, Payload: []byte("text")},
	{Position: 2, Time: cannedTime, Payload: []byte{0xff}},
}

type cannedStreams struct{ *fakeStreams }

func (f cannedStreams) Publish(_ context.Context, name string, as *engine.RequestID, messages []engine.Message, done func(engine.Place, error)) error {
	done(engine.Place{Partition: 1, Position: 7, Count: len(messages), Duplicate: as != nil}, cannedError(name))
	return nil
}

// Read of the stream "message_too_large" begins with such a message.
func (f cannedStreams) Read(ctx context.Context, name string, key *string, after int64, limit int) ([]engine.Message, error) {
	if name == string(engine.CodeMessageTooLarge) {
		return nil, &engine.TooLargeError{Position: 2, Size: 1 << 30}
	}
	return f.fakeStreams.Read(ctx, name, key, after, limit)
}

// Subscribe to the stream "slow" lasts until the caller gives up.
func (f cannedStreams) Subscribe(ctx context.Context, name string, from engine.Start) (engine.Subscription, error) {
	if name == "slow" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if name == string(engine.CodeMessageTooLarge) {
		_, err := f.Read(ctx, name, nil, 0, 1)
		return nil, err
	}
	return f.fakeStreams.Subscribe(ctx, name, from)
}

func (f cannedStreams) List(context.Context) ([]engine.StreamInfo, error) {
	return []engine.StreamInfo{{Name: "s", Keyed: true, Partitions: 2, Created: cannedTime}}, nil
}

func (f cannedStreams) Info(_ context.Context, name string) (engine.StreamDetails, error) {
	return engine.StreamDetails{StreamInfo: engine.StreamInfo{Name: name, Partitions: 2, Created: cannedTime}, Head: 9}, cannedError(name)
}

func (f cannedStreams) Commit(_ context.Context, name, _ string, position int64) (int64, error) {
	return position, cannedError(name)
}

func (f cannedStreams) SeekGroup(context.Context, string, string, engine.Start) (int64, error) {
	return 3, nil
}

func (f cannedStreams) DropGroup(context.Context, string, string) error { return nil }

func (f cannedStreams) Retention(context.Context, string) (engine.Retention, error) {
	return engine.Retention{MaxAge: time.Hour, MaxBytes: 1 << 30, Consumed: true}, nil
}

func (f cannedStreams) SetRetention(context.Context, string, engine.Retention) error { return nil }

type cannedQueues struct{ *fakeQueues }

func (f cannedQueues) Enqueue(_ context.Context, name string, as *engine.RequestID, messages []engine.Message, _ engine.EnqueueOptions, done func(engine.Place, error)) error {
	done(engine.Place{Partition: -1, Position: 7, Count: len(messages), Duplicate: as != nil}, cannedError(name))
	return nil
}

func (f cannedQueues) Consume(_ context.Context, name string, _ engine.ConsumeOptions) (engine.Consumption, error) {
	return &cannedConsumption{broken: make(chan struct{})}, cannedError(name)
}

func (f cannedQueues) Nack(context.Context, []engine.Lease, engine.Nack) []error {
	return nil
}

func (f cannedQueues) Extend(context.Context, []engine.Lease, time.Duration) []error { return nil }

func (f cannedQueues) Options(_ context.Context, name string) (engine.QueueOptions, error) {
	o := engine.QueueOptions{MaxAttempts: 10, RetryMin: time.Second, RetryMax: time.Minute, Priorities: 3}
	if name == "ordered" {
		o.Priorities, o.Partitions = 0, 4
	}
	return o, cannedError(name)
}

func (f cannedQueues) Alter(ctx context.Context, name string, _ engine.QueueOptions) (engine.QueueOptions, error) {
	return f.Options(ctx, name)
}

func (f cannedQueues) Create(_ context.Context, name string, _ *engine.QueueOptions) error {
	return cannedError(name)
}

func (f cannedQueues) Peek(context.Context, string, int) ([]engine.Message, error) {
	return cannedMessages, nil
}

func (f cannedQueues) Pause(context.Context, string) error  { return nil }
func (f cannedQueues) Resume(context.Context, string) error { return nil }
func (f cannedQueues) Purge(context.Context, string, bool) (int64, error) {
	return 2, nil
}

func (f cannedQueues) DeadLetters(context.Context, string, engine.DeadFilter, int64, int) (all []engine.DeadLetter, next int64, err error) {
	for _, m := range cannedMessages {
		all = append(all, engine.DeadLetter{Message: m, Attempts: 3, Reason: "why", Died: cannedTime})
	}
	return all, 2, nil
}

func (f cannedQueues) Redrive(context.Context, string, []int64) (int64, error)   { return 2, nil }
func (f cannedQueues) PurgeDead(context.Context, string, []int64) (int64, error) { return 2, nil }

func (f cannedQueues) ReplaceDead(_ context.Context, _ string, position int64, _ engine.Message, _ engine.EnqueueOptions) (bool, error) {
	return position < 100, nil
}

// RedriveStep never ends, except in a queue whose name begins with "broken": then it fails.
func (f cannedQueues) RedriveStep(ctx context.Context, name string, _ engine.DeadFilter, _ int64, _ int) (engine.DeadStep, error) {
	if strings.HasPrefix(name, "broken") {
		return engine.DeadStep{}, engine.ErrNotFound
	}
	<-ctx.Done()
	return engine.DeadStep{}, ctx.Err()
}

func (f cannedQueues) PurgeDeadStep(ctx context.Context, name string, d engine.DeadFilter, after int64, limit int) (engine.DeadStep, error) {
	return f.RedriveStep(ctx, name, d, after, limit)
}

// cannedConsumption has as many messages as are wanted.
type cannedConsumption struct{ broken chan struct{} }

func (c *cannedConsumption) Receive(ctx context.Context, limit int) (all []engine.Delivery, err error) {
	for i := range limit {
		all = append(all, engine.Delivery{Message: cannedMessages[i%len(cannedMessages)], Attempt: i + 1, Until: time.Now().Add(time.Hour), Lease: i})
	}
	return all, ctx.Err()
}
func (c *cannedConsumption) SetCredits(int)          {}
func (c *cannedConsumption) Broken() <-chan struct{} { return c.broken }
func (c *cannedConsumption) Close()                  {}
func (c *cannedConsumption) Lost()                   {}

type cannedEvents struct{ *fakeEvents }

func (f cannedEvents) Append(_ context.Context, store string, as *engine.RequestID, events []engine.Event, _ *engine.EventCondition) (at engine.AppendedEvents, err error) {
	for i := range events {
		at.Positions = append(at.Positions, int64(i+1))
	}
	at.Duplicate = as != nil
	return at, cannedError(store)
}

func (f cannedEvents) Count(ctx context.Context, store string, queries []engine.EventQuery) ([]int64, engine.EventCondition, error) {
	if err := cannedError(store); err != nil {
		return nil, engine.EventCondition{}, err
	}
	return f.fakeEvents.Count(ctx, store, queries)
}

func (f cannedEvents) Create(context.Context, string) error   { return nil }
func (f cannedEvents) List(context.Context) ([]string, error) { return []string{"default"}, nil }
func (f cannedEvents) Types(context.Context, string, string, string, int) ([]string, error) {
	return []string{"E"}, nil
}
func (f cannedEvents) Head(context.Context, string) (int64, error) { return 5, nil }
func (f cannedEvents) Drop(context.Context, string) error          { return nil }

// cannedSchedules has two schedules: one with a cron expression for a queue, one for a stream and once.
type cannedSchedules struct{}

var cannedSchedule = []engine.Schedule{
	{ScheduleSpec: engine.ScheduleSpec{Name: "a", Cron: "@daily", TimeZone: "UTC", Queue: "q", Key: "k", Headers: []byte(`{}`), Payload: []byte("x"), Priority: 1, CatchUp: "latest"}, Due: cannedTime, Last: cannedTime, Error: "it failed"},
	{ScheduleSpec: engine.ScheduleSpec{Name: "b", At: cannedTime, Stream: "s", Payload: []byte{0xff}, Paused: true}},
}

func (cannedSchedules) Put(_ context.Context, s engine.ScheduleSpec) (engine.Schedule, error) {
	return cannedSchedules{}.Get(context.Background(), s.Name)
}

func (cannedSchedules) Get(_ context.Context, name string) (engine.Schedule, error) {
	if name == "a" {
		return cannedSchedule[0], nil
	}
	return cannedSchedule[1], nil
}
func (cannedSchedules) List(context.Context, string, int) ([]engine.Schedule, error) {
	return cannedSchedule, nil
}
func (cannedSchedules) Drop(context.Context, string) error   { return nil }
func (cannedSchedules) Pause(context.Context, string) error  { return nil }
func (cannedSchedules) Resume(context.Context, string) error { return nil }

// cannedNodes are two servers, of which the other one never answers.
type cannedNodes struct{}

func (cannedNodes) Name() string { return "one" }
func (cannedNodes) Exist(context.Context, []string) (map[string]bool, error) {
	return nil, nil
}
func (cannedNodes) Unheard() []string { return nil }
func (cannedNodes) Heard() []string   { return []string{"two"} }
func (cannedNodes) Ask(context.Context, string, []byte) ([]byte, error) {
	return nil, engine.ErrBusy
}
func (cannedNodes) List(context.Context) ([]gateway.NodeInfo, error) {
	ms := int64(12)
	return []gateway.NodeInfo{{Node: "one", Address: "host:1", Machine: "m", Version: "v1", Started: &cannedTime, SeenMS: &ms, Heard: true}}, nil
}

// cannedAdministration carries every act out, except for the user "many".
type cannedAdministration struct{}

func (cannedAdministration) OnChange(func(auth.Change))                           {}
func (cannedAdministration) DisconnectUser(context.Context, string, string) error { return nil }
func (cannedAdministration) RevokeUser(_ context.Context, _, user string, _, _ time.Time) error {
	if user == "many" {
		return auth.ErrTooMany
	}
	return nil
}
func (cannedAdministration) RevokeToken(context.Context, string, string, time.Time) error { return nil }
func (cannedAdministration) ExchangeKey(context.Context, string, string) (string, time.Time, error) {
	return "tw_new", time.Now().Add(time.Hour), nil
}

// The keys are a new one, one that has ended, and one that was revoked. One of the name "taken" there was with the right of an administrator, and there are
// too many for "many".
func (cannedAdministration) Keys(context.Context) ([]auth.KeyInfo, error) {
	key := auth.KeyInfo{ID: "abcdefgh", Name: "shop", Allow: []string{"read stream:orders"}, Created: cannedTime, By: "root"}
	ended, revoked := key, key
	ended.Expires, ended.Expired, revoked.Revoked = &cannedTime, true, &cannedTime
	return []auth.KeyInfo{key, ended, revoked}, nil
}

func (cannedAdministration) CreateKey(_ context.Context, _, name string, _ []string, _ time.Duration, permit func([]string) error) (id, text string, err error) {
	same := []string{}
	switch name {
	case "taken":
		same = append(same, "admin stream:**")
	case "many":
		return "", "", auth.ErrTooMany
	}
	return "abcdefgh", "tw_abcdefgh_secret", permit(same)
}

func (cannedAdministration) RevokeKey(_ context.Context, _, id string) error {
	if id != "abcdefgh" {
		return auth.ErrNoKey
	}
	return nil
}

func cannedEngine(f closed) engine.Engine {
	return engine.Engine{
		Ingest: (&memory{}).source, Streams: cannedStreams{f.streams}, Queues: cannedQueues{f.queues},
		Events: cannedEvents{newFakeEvents()}, Schedules: cannedSchedules{},
	}
}
