package websocket

import (
	"fmt"
	"testing"
)

// BenchmarkDecode counts messages of 100 bytes, masked, in buffers of 64 KiB.
func BenchmarkDecode(b *testing.B) {
	for _, op := range []Opcode{OpText, OpBinary} {
		for _, size := range []int{16, 100, 1000} {
			b.Run(fmt.Sprintf("%v/%d", op, size), func(b *testing.B) {
				payload := make([]byte, size)
				for i := range payload {
					payload[i] = 'a' + byte(i%26)
				}
				var stream []byte
				n := 0
				for len(stream)+size+14 <= 64<<10 {
					stream = AppendMaskedFrame(stream, op, [4]byte{1, 2, 3, byte(n)}, payload)
					n++
				}
				d := decoder{size: 64 << 10, max: 1 << 20}
				count := 0
				b.ReportAllocs()
				for b.Loop() {
					d.w += copy(d.space(), stream)
					count += len(d.decode())
				}
				if count != n*b.N || d.err != nil {
					b.Fatal(count, n*b.N, d.err)
				}
				b.ReportMetric(float64(count)/b.Elapsed().Seconds()/1e6, "Mmsg/s")
			})
		}
	}
}

func BenchmarkMask(b *testing.B) {
	for _, size := range []int{5, 16, 100, 1000, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			p := make([]byte, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				Mask(p, [4]byte{1, 2, 3, 4}, 1)
			}
		})
	}
}
