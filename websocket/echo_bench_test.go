package websocket

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
)

// BenchmarkEcho: each connection sends 16 messages of 100 bytes at once and
// waits for the 16 answers. The bare server has no WebSocket code and shows the
// cost of the system alone. One operation is one message there and back; its
// client, two system calls for 16, runs in the same process.
func BenchmarkEcho(b *testing.B) {
	const inFlight = 16
	for _, test := range []struct {
		server string
		conns  int
	}{{"tidewire", 1}, {"tidewire", 4}, {"tidewire", 64}, {"bare", 1}, {"bare", 4}, {"bare", 64}} {
		b.Run(fmt.Sprintf("%s/conns=%d", test.server, test.conns), func(b *testing.B) {
			conns := test.conns
			payload := make([]byte, 100)
			var request []byte
			for range inFlight {
				request = AppendMaskedFrame(request, OpText, [4]byte{1, 2, 3, 4}, payload)
			}
			var servers, clients sync.WaitGroup
			start := make(chan struct{})
			rounds := b.N/(conns*inFlight) + 1
			for range conns {
				server, socket := rawPair(b, Config{})
				servers.Go(func() {
					if test.server == "bare" {
						bareEcho(server.conn, len(request), inFlight*frameSize(len(payload), false))
						server.Abort()
						return
					}
					echo(server)
				})
				clients.Go(func() {
					answer := make([]byte, inFlight*frameSize(len(payload), false))
					<-start
					for range rounds {
						if _, err := socket.Write(request); err != nil {
							b.Error(err)
							return
						}
						if _, err := io.ReadFull(socket, answer); err != nil {
							b.Error(err)
							return
						}
					}
					if _, err := socket.Write(frame(true, OpClose, "\x03\xe8")); err != nil {
						b.Error(err)
					}
				})
			}
			b.ReportAllocs()
			b.ResetTimer()
			close(start)
			clients.Wait()
			servers.Wait()
			b.StopTimer()
			b.ReportMetric(float64(rounds*conns*inFlight)/b.Elapsed().Seconds()/1e6, "Mmsg/s")
		})
	}
}

// bareEcho answers every request of one size with an answer of the other size.
func bareEcho(socket net.Conn, request, answer int) {
	b := make([]byte, 64<<10)
	for {
		n, err := io.ReadAtLeast(socket, b, 1)
		if err != nil || n < request {
			return
		}
		if _, err := socket.Write(b[:answer]); err != nil {
			return
		}
	}
}

// BenchmarkWriteShared writes a thousand frames of 100 bytes to one connection,
// which only reads.
func BenchmarkWriteShared(b *testing.B) {
	server, socket := rawPair(b, Config{})
	var shared []byte
	for range 1000 {
		shared = AppendFrame(shared, OpText, make([]byte, 100))
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := io.Copy(io.Discard, struct{ io.Reader }{socket}); err != nil {
			b.Log(err)
		}
	})
	b.SetBytes(int64(len(shared)))
	for b.Loop() {
		for offset := 0; offset < len(shared); {
			n, err := server.WriteShared(shared[offset:])
			if err != nil {
				b.Fatal(err)
			}
			offset += n
		}
	}
	server.Abort()
	wg.Wait()
}
