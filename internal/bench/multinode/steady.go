package multinode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/websocket"
)

// SteadyConfig configures RunSteady.
type SteadyConfig struct {
	Nodes       []int // numbers of nodes to compare
	Repeat      int   // rounds, each of which measures every number of nodes
	Rate        int   // messages a second, of all publishers together
	Payload     int   // bytes of a message, at least 20
	Subscribers int   // of the stream, divided between the nodes
	Duration    time.Duration

	PostgreSQL embedpg.Config // without a directory
	Dir        string         // of its data and of the nodes' logs
	Program    string         // path of tidewire
	Control    *bench.Control // may be nil
	Progress   func(format string, args ...any)
}

// mostDrain is how long after the last message the last delivery may come. If it takes longer, the servers do not keep the rate.
func (cfg SteadyConfig) mostDrain() time.Duration { return max(2*time.Second, cfg.Duration/5) }

// publishers is how many connections publish, divided between the nodes.
const publishers = 4

// RunSteady publishes to one stream at a steady rate and delivers it to subscribers at all nodes, without faults. It adds a row for
// each number of nodes, with the CPU time of PostgreSQL and of the nodes, and checks that everything was delivered.
func RunSteady(ctx context.Context, cfg SteadyConfig, result *bench.Result) (err error) {
	s := &system{}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	cfg.Progress("starting PostgreSQL")
	if err := s.startPostgres(ctx, cfg.PostgreSQL, cfg.Dir); err != nil {
		return err
	}
	var steps []bench.Step
	for trial := range cfg.Repeat {
		for _, n := range cfg.Nodes {
			steps = append(steps, bench.Step{Row: steadyRow(n), Trial: trial, Duration: cfg.Duration})
		}
	}
	return cfg.Control.Run(ctx, result, steps, func(ctx context.Context, step bench.Step) error {
		var nodes int
		fmt.Sscanf(step.Row, "nodes %d", &nodes)
		err := steady(ctx, cfg, s, nodes, step, result)
		return errors.Join(err, s.stopNodes(context.WithoutCancel(ctx)))
	})
}

func steadyRow(nodes int) string { return fmt.Sprintf("nodes %d", nodes) }

// steady makes one measurement.
func steady(ctx context.Context, cfg SteadyConfig, s *system, nodes int, step bench.Step, result *bench.Result) error {
	dir := filepath.Join(cfg.Dir, fmt.Sprintf("%d-of-%d", step.Trial+1, nodes))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for range nodes {
		if err := s.addNode(ctx, cfg.Program, dir); err != nil {
			return err
		}
	}
	f := &flow{cfg: cfg, stream: fmt.Sprintf("steady-%d-%d", step.Trial, nodes)}
	defer f.close()
	if err := f.open(ctx, s.nodes); err != nil {
		return err
	}
	var servers []int
	for _, n := range s.nodes {
		servers = append(servers, n.process().Pid())
	}
	cfg.Control.Phase(bench.PhaseMeasured)
	sampler := bench.SampleProcesses(ctx, servers, s.postgres.PID())
	began := time.Now()
	f.publish(ctx)
	published := time.Now()
	f.drain(ctx)
	drained := time.Since(published)
	took := time.Since(began).Seconds()
	used := sampler.Stop()
	sent, got := f.sent.Load(), f.got.Load()
	result.AddTrial(step.Row, "", map[string]float64{
		"seconds": took, "sent": float64(sent), "delivered": float64(got), "messages_per_second": float64(sent) / took,
		"postgres_cores": used[bench.Postgres].CPUSeconds / took, "server_cores": used[bench.Server].CPUSeconds / took,
		"generator_cores": used[bench.Generator].CPUSeconds / took,
	})
	want := sent * int64(cfg.Subscribers)
	result.Check(fmt.Sprintf("%s, round %d: everything is delivered once", step.Row, step.Trial+1), got == want, "%d deliveries of %d messages, want %d", got, sent, want)
	result.Check(fmt.Sprintf("%s, round %d: the rate is kept", step.Row, step.Trial+1), drained <= f.cfg.mostDrain(), "the last delivery came %.2f s after the last message was sent", drained.Seconds())
	return ctx.Err()
}

// flow is a stream with its publishers and subscribers.
type flow struct {
	cfg       SteadyConfig
	stream    string
	writers   []*websocket.Conn
	conns     []*websocket.Conn // all
	reading   sync.WaitGroup
	sent, got atomic.Int64
}

// open creates the stream, subscribes, and connects the publishers.
func (f *flow) open(ctx context.Context, nodes []*node) error {
	dial := func(n int) (*websocket.Conn, error) {
		_, address := nodes[n%len(nodes)].current()
		conn, err := websocket.Dial(ctx, "ws://"+address+"/ws", websocket.Config{})
		if err == nil {
			f.conns = append(f.conns, conn)
		}
		return conn, err
	}
	if err := createStream(ctx, nodes[0], f.stream); err != nil {
		return err
	}
	var subscribed sync.WaitGroup
	for i := range f.cfg.Subscribers {
		conn, err := dial(i)
		if err != nil {
			return err
		}
		say(conn, `{"type":"subscribe","id":1,"stream":%q,"after":0}`, f.stream)
		subscribed.Add(1)
		f.reading.Go(func() { f.read(conn, sync.OnceFunc(subscribed.Done)) })
	}
	for i := range publishers {
		conn, err := dial(i)
		if err != nil {
			return err
		}
		f.writers = append(f.writers, conn)
		f.reading.Go(func() { f.read(conn, func() {}) })
	}
	subscribed.Wait()
	return nil
}

func createStream(ctx context.Context, n *node, name string) error {
	_, address := n.current()
	l := &load{http: newHTTP()}
	return l.call(ctx, "POST", address, "/v1/streams/"+name, nil, &struct{}{})
}

// read counts messages until the connection ends. It calls subscribed at the first answer, and at the end.
func (f *flow) read(conn *websocket.Conn, subscribed func()) {
	defer subscribed()
	for {
		messages, err := conn.Read()
		for _, m := range messages {
			if bytes.Contains(m.Payload, []byte(`"type":"message"`)) {
				f.got.Add(1)
			} else {
				subscribed()
			}
		}
		if err != nil {
			return
		}
	}
}

// publish publishes at the rate for the duration, without answers.
func (f *flow) publish(ctx context.Context) {
	var writing sync.WaitGroup
	began, payload := time.Now(), strings.Repeat("x", f.cfg.Payload)
	for i, conn := range f.writers {
		writing.Go(func() {
			message := []byte(`{"type":"publish","stream":` + strconv.Quote(f.stream) + `,"payload":"` + payload + `"}`)
			for n := i; ctx.Err() == nil; {
				elapsed := min(time.Since(began), f.cfg.Duration)
				for ; n < int(elapsed.Seconds()*float64(f.cfg.Rate)); n += len(f.writers) {
					conn.Queue(websocket.OpText, message)
					f.sent.Add(1)
				}
				if conn.Flush() != nil || elapsed == f.cfg.Duration {
					return
				}
				sleep(ctx, 2*time.Millisecond)
			}
		})
	}
	writing.Wait()
}

// drain waits until everything is delivered, or for a while.
func (f *flow) drain(ctx context.Context) {
	for end := time.Now().Add(30 * time.Second); f.got.Load() < f.sent.Load()*int64(f.cfg.Subscribers) && time.Now().Before(end); {
		if sleep(ctx, 5*time.Millisecond) != nil {
			return
		}
	}
}

func (f *flow) close() {
	for _, c := range f.conns {
		c.Abort()
	}
	f.reading.Wait()
}
