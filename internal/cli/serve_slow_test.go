package cli_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
	"github.com/tidewire/tidewire/websocket"
)

// TestServe_SlowReadersAreBounded: the process keeps within --max-memory, as the system measures it, whichever door it is by which clients ask for
// large messages, and do not read or do not settle them.
func TestServe_SlowReadersAreBounded(t *testing.T) {
	t.Parallel()
	for name, door := range map[string]struct {
		memory, size, messages, clients int
		open                            func(ctx context.Context, addr string)
	}{
		"follow": {256, 1_040_000, 60, 1000, func(ctx context.Context, addr string) {
			unreadRequest(ctx, addr, "GET /v1/streams/big/follow?after=0 HTTP/1.1")
		}},
		"pages": {128, 400_000, 60, 200, func(ctx context.Context, addr string) {
			unreadRequest(ctx, addr, "GET /v1/streams/big/messages?limit=1000 HTTP/1.1")
		}},
		"subscribe": {256, 400_000, 60, 300, func(ctx context.Context, addr string) {
			unreadSocket(ctx, addr, `{"type":"subscribe","stream":"big","after":0,"id":1}`, false)
		}},
		"consume": {128, 500_000, 400, 4, func(ctx context.Context, addr string) {
			unreadSocket(ctx, addr, `{"type":"consume","queue":"jobs","credits":1000,"id":1}`, true)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			lasts := 6 * time.Second
			if name == "pages" {
				lasts = 2 * time.Second
			} else {
				testkit.Long(t)
			}
			db := migrated(t)
			s, err := stream.Ensure(t.Context(), db.Pool, "big", stream.Options{})
			if err != nil {
				t.Fatal(err)
			}
			q, err := queue.Ensure(t.Context(), db.Pool, "jobs", queue.Options{})
			if err != nil {
				t.Fatal(err)
			}
			appender, enqueuer := stream.NewAppender(db.Pool, s, stream.AppenderConfig{}), queue.NewEnqueuer(q, queue.EnqueuerConfig{})
			appender.Start()
			enqueuer.Start()
			for range door.messages {
				payload := []byte(strings.Repeat("x", door.size))
				if door.size == 500_000 {
					_, err = enqueuer.Enqueue(t.Context(), queue.Message{Payload: payload})
				} else {
					_, err = appender.Append(t.Context(), stream.Message{Payload: payload})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			appender.Stop()
			enqueuer.Stop()
			p := serve(t, "--database-url", db.URL, "--max-memory", fmt.Sprintf("%dMiB", door.memory))
			ctx, stop := context.WithTimeout(t.Context(), lasts)
			defer stop()
			var clients sync.WaitGroup
			for range door.clients {
				clients.Go(func() {
					for ctx.Err() == nil {
						door.open(ctx, p.Addr)
					}
				})
			}
			clients.Wait()
			peak := peakMemory(t, p.Cmd.Process.Pid)
			t.Logf("%s: %d MiB of %d", name, peak>>20, door.memory)
			if peak > door.memory<<20 {
				t.Errorf("%d MiB at its peak, want at most %d", peak>>20, door.memory)
			}
		})
	}
}

// unreadRequest sends a request, and reads nothing, until ctx or the connection ends.
func unreadRequest(ctx context.Context, addr, line string) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	c.(*net.TCPConn).SetReadBuffer(4096)
	fmt.Fprintf(c, "%s\r\nHost: localhost\r\n\r\n", line)
	bufio.NewReaderSize(c, 16).Peek(1)
	<-ctx.Done()
}

// unreadSocket sends a message on /ws, and reads all or nothing after the answer, until ctx or the connection ends.
func unreadSocket(ctx context.Context, addr, text string, reads bool) {
	c, err := websocket.Dial(ctx, "ws://"+addr+"/ws", websocket.Config{})
	if err != nil {
		return
	}
	defer c.Abort()
	defer context.AfterFunc(ctx, c.Abort)()
	say(c, "%s", text)
	for err == nil && reads {
		_, err = c.Read()
	}
	<-ctx.Done()
}

// peakMemory is the peak of the memory of a process, as the system measures it.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip(err) // not Linux
	}
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
