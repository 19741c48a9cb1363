package main

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsTarget measures nats.go on JetStream, with streams in files.
type natsTarget struct {
	o   options
	nc  *nats.Conn
	js  jetstream.JetStream
	all []jetstream.ConsumeContext // of memory
}

func (t *natsTarget) prepare(ctx context.Context, o options) (err error) {
	t.o = o
	if t.nc, err = nats.Connect(o.url); err != nil {
		return err
	}
	if t.js, err = jetstream.New(t.nc, jetstream.WithPublishAsyncMaxPending(1000)); err != nil {
		return err
	}
	_, err = t.js.CreateStream(ctx, jetstream.StreamConfig{Name: o.name, Subjects: []string{o.name}, Storage: jetstream.FileStorage})
	return err
}

func (t *natsTarget) publish(ctx context.Context, payload []byte) error {
	_, err := t.js.Publish(ctx, t.o.name, payload)
	return err
}

func (t *natsTarget) fill(ctx context.Context, count int, payload []byte) error {
	for range count {
		if _, err := t.js.PublishAsync(t.o.name, payload); err != nil {
			return err
		}
	}
	select {
	case <-t.js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *natsTarget) subscribe(ctx context.Context, count int) error {
	consumer, err := t.js.OrderedConsumer(ctx, t.o.name, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	return consume(ctx, consumer, count, func(jetstream.Msg) error { return nil })
}

// consume takes count messages.
func consume(ctx context.Context, consumer jetstream.Consumer, count int, handle func(jetstream.Msg) error) error {
	done := make(chan error, 1)
	var n atomic.Int64
	c, err := consumer.Consume(func(m jetstream.Msg) {
		err := handle(m)
		if n.Add(1) == int64(count) || err != nil {
			select {
			case done <- err:
			default:
			}
		}
	})
	if err != nil {
		return err
	}
	defer c.Stop()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *natsTarget) enqueue(ctx context.Context, count int, payload []byte) error {
	return t.fill(ctx, count, payload)
}

func (t *natsTarget) work(ctx context.Context, count, concurrency int) error {
	consumer, err := t.js.CreateConsumer(ctx, t.o.name, jetstream.ConsumerConfig{
		Durable: strings.ReplaceAll(t.o.name, ".", "-"), AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: concurrency,
	})
	if err != nil {
		return err
	}
	return consume(ctx, consumer, count, func(m jetstream.Msg) error { return m.DoubleAck(ctx) })
}

func (t *natsTarget) client(ctx context.Context) error {
	nc, err := nats.Connect(t.o.url)
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	consumer, err := js.OrderedConsumer(ctx, t.o.name, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
	if err != nil {
		return err
	}
	c, err := consumer.Consume(func(jetstream.Msg) {})
	t.all = append(t.all, c)
	return err
}
