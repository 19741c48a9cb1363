package natsrelay

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
)

// BenchmarkRoute sends messages from one node to another in this process, without and with TLS in turn. The unit cpu-ns/op is the CPU time
// of the process, which is both nodes, for a message. For several rounds in turn, run it several times: -count repeats each part alone.
func BenchmarkRoute(b *testing.B) {
	for _, size := range []int{200, 16 << 10} {
		for _, encrypted := range []bool{false, true} {
			b.Run(fmt.Sprintf("%dB/tls=%t", size, encrypted), func(b *testing.B) { benchmarkRoute(b, size, encrypted) })
		}
	}
}

func benchmarkRoute(b *testing.B, size int, encrypted bool) {
	var relays []*Relay
	for n := range 2 {
		cfg := Config{Node: fmt.Sprint("node", n), Cluster: "c", Listen: "127.0.0.1:0", Secret: "s", MaxMessage: 1 << 20, Log: slog.New(slog.DiscardHandler)}
		routes, err := routeTLS(cfg)
		if err != nil {
			b.Fatal(err)
		}
		if !encrypted {
			routes = nil
		}
		r, err := start(cfg, routes)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(r.Close)
		relays = append(relays, r)
	}
	if err := relays[0].SetPeers([]string{relays[1].Addr()}); err != nil {
		b.Fatal(err)
	}
	var known atomic.Bool // the other node listens
	arrived := make(chan struct{}, 1<<20)
	if _, err := relays[1].Listen("x", func(message []byte) {
		if len(message) > 0 {
			arrived <- struct{}{}
		} else {
			known.Store(true)
		}
	}); err != nil {
		b.Fatal(err)
	}
	message := make([]byte, size)
	testkit.Eventually(b, "the other node is known to listen", func() bool {
		relays[0].Publish("x", nil)
		return known.Load()
	})
	const window = 1000 // messages on the way, so that none is lost
	b.SetBytes(int64(size))
	before := cpu(b)
	b.ResetTimer()
	var receiving sync.WaitGroup
	free := make(chan struct{}, window)
	receiving.Go(func() {
		for range b.N {
			<-arrived
			<-free
		}
	})
	for range b.N {
		free <- struct{}{}
		if err := relays[0].Publish("x", message); err != nil {
			b.Fatal(err)
		}
	}
	receiving.Wait()
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

// cpu returns the CPU time of this process.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
