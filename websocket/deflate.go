package websocket

import (
	"io"
	"runtime"
	"sync"

	"github.com/klauspost/compress/flate"
)

// compressors has a pool for each level; 0 keeps nothing between messages. They are of klauspost/compress because package
// compress/flate clears 640 KiB before each message, however short, and has nothing without a state.
//
// While it compresses a message of a megabyte, a compressor holds 280 KiB at level 0, 805 KiB at level 1, 1,390 KiB at
// level 9, and 930 to 1,190 KiB at the levels between. (One of compress/flate holds 790 KiB at its default level.)
// Connections hold none. The garbage collector empties the pools.
var compressors [10]sync.Pool

// deflating limits how many messages are compressed at a time, and so the number of compressors: more would not be faster.
var deflating = make(chan struct{}, runtime.GOMAXPROCS(0))

// trailerSize is the size of the empty block that ends every compressed message, and is not sent (RFC 7692, section 7.2.1).
const trailerSize = 4

// deflate returns the compressed message, in a buffer that the caller puts back, or nil if it would not be smaller than in.
// Level is 0 to 9, window the largest distance of a repetition in bits.
func deflate(in []byte, level, window int) *buffer {
	if len(in) == 0 {
		return nil
	}
	if window < fullWindow {
		level = 0
	}
	deflating <- struct{}{}
	defer func() { <-deflating }()
	z, ok := compressors[level].Get().(*compressor)
	if !ok {
		z = &compressor{}
	}
	z.out, z.most = getBuffer(len(in)+trailerSize), len(in)+trailerSize-1
	z.out.b = z.out.b[:0]
	err := z.deflate(in, level, window)
	out := z.out
	z.out = nil
	compressors[level].Put(z)
	if err != nil {
		out.put()
		return nil
	}
	out.b = out.b[:len(out.b)-trailerSize]
	return out
}

// compressor compresses one message at a time. It is the io.Writer of what does the work.
type compressor struct {
	w    *flate.Writer // nil at first, and for level 0
	out  *buffer
	most int // bytes of a message with its trailer
}

func (z *compressor) deflate(in []byte, level, window int) (err error) {
	switch {
	case window < fullWindow:
		return z.deflateParts(in, 1<<window)
	case level == 0:
		return flate.StatelessDeflate(z, in, false, nil)
	case z.w != nil:
		z.w.Reset(z)
	default:
		if z.w, err = flate.NewWriter(z, level); err != nil {
			return err
		}
	}
	if _, err = z.w.Write(in); err != nil {
		return err
	}
	return z.w.Flush()
}

// deflateParts compresses parts of in. A part refers to no other part, so no repetition is over a longer distance than size.
func (z *compressor) deflateParts(in []byte, size int) error {
	for len(in) > 0 {
		part := in[:min(len(in), size)]
		in = in[len(part):]
		if err := flate.StatelessDeflate(z, part, false, nil); err != nil {
			return err
		}
	}
	return nil
}

// Write implements io.Writer. It fails when the message gets no smaller.
func (z *compressor) Write(p []byte) (int, error) {
	if len(z.out.b)+len(p) > z.most {
		return 0, io.ErrShortWrite
	}
	z.out.b = append(z.out.b, p...)
	return len(p), nil
}
