// Command bench measures the Go client of Tidewire, and nats.go on JetStream in the same way. It prints one line of JSON.
//
//	bench publish|subscribe|jobs|memory --url ws://localhost:8080/ws --count 100000 --size 1024 --in-flight 16
//	bench reconnect --url ws://localhost:8080/ws --count 1000
//	bench publish|subscribe|jobs|memory --server nats --url nats://localhost:4222 …
//
// publish waits for the answer to each message, with so many under way. subscribe publishes first, and measures the catch-up. jobs enqueues first, and
// measures the work. memory opens count clients with one subscription each, and prints the bytes of this process for each.
// reconnect opens count clients with one subscription each, and measures how long after a restart of the server all of them have resumed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"
)

// options are those of one run.
type options struct {
	op, url               string
	count, size, inFlight int
	name                  string // of a new stream and queue
	profile               string // file for a profile of the CPU
}

// target is what is measured.
type target interface {
	prepare(ctx context.Context, o options) error
	publish(ctx context.Context, payload []byte) error
	fill(ctx context.Context, count int, payload []byte) error // stores messages fast
	subscribe(ctx context.Context, count int) error            // takes count messages from the first one on
	enqueue(ctx context.Context, count int, payload []byte) error
	work(ctx context.Context, count, concurrency int) error
	client(ctx context.Context) error // one more client with a subscription, until the process ends
}

// report is what is printed.
type report struct {
	Op        string  `json:"op"`
	Count     int     `json:"count"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
	CPU       float64 `json:"cpu_seconds"` // of this process
	Bytes     uint64  `json:"bytes_per_client,omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) < 2 {
		return fmt.Errorf("say what to measure: publish, subscribe, jobs, memory or reconnect")
	}
	o := options{op: os.Args[1], name: fmt.Sprintf("bench-%d", time.Now().UnixNano())}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	server := flags.String("server", "tidewire", "tidewire or nats")
	flags.StringVar(&o.url, "url", "ws://localhost:8080/ws", "address of the server")
	flags.IntVar(&o.count, "count", 100000, "messages, or clients")
	flags.IntVar(&o.size, "size", 1024, "bytes of a message")
	flags.IntVar(&o.inFlight, "in-flight", 16, "publishes, or handlers, at a time")
	flags.StringVar(&o.profile, "profile", "", "write a profile of the CPU to this file, for go tool pprof")
	if err := flags.Parse(os.Args[2:]); err != nil {
		return err
	}
	var t target = new(tidewireTarget)
	if *server == "nats" {
		t = new(natsTarget)
	}
	ctx := context.Background()
	if err := t.prepare(ctx, o); err != nil {
		return err
	}
	r, err := measure(ctx, t, o)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// measure runs one operation.
func measure(ctx context.Context, t target, o options) (report, error) {
	payload := make([]byte, o.size)
	for i := range payload {
		payload[i] = 'a' + byte(i%26)
	}
	var profile *os.File
	if o.profile != "" {
		var err error
		if profile, err = os.Create(o.profile); err != nil {
			return report{}, err
		}
		defer profile.Close()
	}
	before := 0.0
	r := report{Op: o.op, Count: o.count}
	var err error
	var began time.Time
	begin := func() {
		began, before = time.Now(), cpu()
		if profile != nil {
			pprof.StartCPUProfile(profile)
		}
	}
	switch o.op {
	case "publish":
		begin()
		err = publish(ctx, t, o, payload)
	case "subscribe":
		if err = t.fill(ctx, o.count, payload); err == nil {
			begin()
			err = t.subscribe(ctx, o.count)
		}
	case "jobs":
		if err = t.enqueue(ctx, o.count, payload); err == nil {
			begin()
			err = t.work(ctx, o.count, o.inFlight)
		}
	case "memory":
		began = time.Now()
		r.Bytes, err = memory(ctx, t, o.count)
	case "reconnect":
		own, ok := t.(*tidewireTarget)
		if !ok {
			return r, errors.New("reconnect is for Tidewire alone")
		}
		var took time.Duration
		took, err = reconnect(ctx, own, o.count)
		began = time.Now().Add(-took)
	default:
		err = fmt.Errorf("there is no operation %q: want publish, subscribe, jobs, memory or reconnect", o.op)
	}
	r.Seconds = time.Since(began).Seconds()
	r.CPU = cpu() - before
	pprof.StopCPUProfile()
	r.PerSecond = float64(o.count) / r.Seconds
	return r, err
}

// publish publishes count messages, so many at a time.
func publish(ctx context.Context, t target, o options, payload []byte) error {
	var all sync.WaitGroup
	failed := make(chan error, o.inFlight)
	for i := range o.inFlight {
		n := o.count / o.inFlight
		if i < o.count%o.inFlight {
			n++
		}
		all.Add(1)
		go func() {
			defer all.Done()
			for range n {
				if err := t.publish(ctx, payload); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// cpu returns the seconds that this process has computed.
func cpu() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// memory opens clients, and returns how many bytes of memory each takes.
func memory(ctx context.Context, t target, count int) (uint64, error) {
	before := used()
	for range count {
		if err := t.client(ctx); err != nil {
			return 0, err
		}
	}
	return (used() - before) / uint64(max(1, count)), nil
}

// used returns the bytes that this process uses: the heap and the stacks.
func used() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
