package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/tidewire/tidewire/internal/cluster"
	"github.com/tidewire/tidewire/internal/relay/natsrelay"
	"github.com/tidewire/tidewire/internal/testkit"
)

// pair returns two nodes that run and hear each other.
func pair(tb testing.TB) (a, b *cluster.Node) {
	tb.Helper()
	var nodes []*cluster.Node
	var relays []*natsrelay.Relay
	for i := range 2 {
		r, err := natsrelay.Start(natsrelay.Config{
			Node: cluster.NodeName(uint64(i + 1)), Cluster: "c", Listen: "127.0.0.1:0", Secret: "s", Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(r.Close)
		n, err := cluster.NewNode(uint64(i+1), r)
		if err != nil {
			tb.Fatal(err)
		}
		relays, nodes = append(relays, r), append(nodes, n)
	}
	if err := relays[1].SetPeers([]string{relays[0].Addr()}); err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, n := range nodes {
		running.Go(func() { n.Run(ctx) })
	}
	tb.Cleanup(func() {
		stop()
		running.Wait()
	})
	for _, n := range nodes {
		testkit.Eventually(tb, "the nodes hear each other", func() bool { return n.Stats().Peers > 0 })
	}
	return nodes[0], nodes[1]
}

// TestNode_Ask: each question gets its own answer, and there are none of nodes that do not exist.
func TestNode_Ask(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	b.Reply(func(_ context.Context, question []byte) []byte { return append([]byte("re: "), question...) })
	var asking sync.WaitGroup
	for i := range 200 {
		asking.Go(func() {
			question := fmt.Appendf(nil, "question %d", i)
			answer, err := a.Ask(t.Context(), b.Name(), question)
			if err != nil || !bytes.Equal(answer, append([]byte("re: "), question...)) {
				t.Errorf("%q, %v", answer, err)
			}
		})
	}
	names := []string{"", "2", "x", b.Name() + "0", "FFFFFFFFFFFFFFFF"}
	if !testing.Short() {
		names = append(names, cluster.NodeName(3)) // which is waited for
	}
	for _, name := range names {
		asking.Go(func() {
			if _, err := a.Ask(t.Context(), name, nil); !errors.Is(err, cluster.ErrNoNode) {
				t.Errorf("node %q: %v", name, err)
			}
		})
	}
	asking.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Ask(ctx, a.Name(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	if testing.Short() {
		return
	}
	if _, err := b.Ask(t.Context(), a.Name(), nil); !errors.Is(err, cluster.ErrNoAnswer) {
		t.Errorf("a node that answers nothing: %v", err)
	}
}

// BenchmarkAsk asks another node in the same process.
func BenchmarkAsk(b *testing.B) {
	one, other := pair(b)
	other.Reply(func(_ context.Context, question []byte) []byte { return question })
	question := make([]byte, 200)
	for _, at := range []int{1, 16} {
		b.Run(fmt.Sprint("at=", at), func(b *testing.B) {
			var asking sync.WaitGroup
			share := b.N/at + 1
			for range at {
				asking.Go(func() {
					for range share {
						if _, err := one.Ask(b.Context(), other.Name(), question); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			asking.Wait()
			b.ReportMetric(float64(share*at)/b.Elapsed().Seconds(), "asks/s")
		})
	}
}
