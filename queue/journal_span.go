package queue

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
)

// span is the positions from lo to hi, inclusive.
type span struct{ lo, hi int64 }

func (s span) size() int64 { return s.hi - s.lo + 1 }

// coalesce sorts spans and joins those that touch or overlap. It works in place.
func coalesce(spans []span) []span {
	if len(spans) < 2 {
		return spans
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	joined := spans[:1]
	for _, s := range spans[1:] {
		if last := &joined[len(joined)-1]; s.lo <= last.hi+1 {
			last.hi = max(last.hi, s.hi)
			continue
		}
		joined = append(joined, s)
	}
	return joined
}

// subtract returns the positions in a that are not in b. Both are coalesced.
func subtract(a, b []span) (rest []span) {
	for _, s := range a {
		for len(b) > 0 && b[0].hi < s.lo {
			b = b[1:]
		}
		for _, hole := range b {
			if hole.lo > s.hi {
				break
			}
			if hole.lo > s.lo {
				rest = append(rest, span{s.lo, hole.lo - 1})
			}
			s.lo = hole.hi + 1
		}
		if s.lo <= s.hi {
			rest = append(rest, s)
		}
	}
	return rest
}

var errSpans = errors.New("queue: malformed spans in the journal")

// encodeSpans writes coalesced spans as varint distances, usually two to four
// bytes a span.
func encodeSpans(spans []span) []byte {
	var out []byte
	end := int64(0)
	for _, s := range spans {
		out = binary.AppendUvarint(out, uint64(s.lo-end))
		out = binary.AppendUvarint(out, uint64(s.hi-s.lo))
		end = s.hi
	}
	return out
}

func decodeSpans(text []byte) (spans []span, err error) {
	end := int64(0)
	for len(text) > 0 {
		gap, n := binary.Uvarint(text)
		if n <= 0 {
			return nil, errSpans
		}
		length, m := binary.Uvarint(text[n:])
		if m <= 0 {
			return nil, errSpans
		}
		text = text[n+m:]
		s := span{lo: end + int64(gap)}
		s.hi = s.lo + int64(length)
		if s.lo < end || s.hi < s.lo {
			return nil, errSpans
		}
		spans = append(spans, s)
		end = s.hi
	}
	return spans, nil
}
