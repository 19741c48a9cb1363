package wire

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// quoted reads a string. The text is a part of the message, unless it has escapes.
func (r *jsonReader) quoted() ([]byte, bool) {
	if !r.begin() {
		return nil, false
	}
	from := r.i + 1
	end := plainEnd(r.message, from)
	if end < len(r.message) && r.message[end] == '"' {
		r.i = end + 1
		return r.message[from:end:end], true
	}
	return r.escaped(from, end)
}

// plainEnd returns the offset of the first byte from i on that is a quotation mark, a backslash or a control
// character, or the length of the text. It looks at eight bytes at a time: see "Determine if a word has a byte less
// than n" in Bit Twiddling Hacks, https://graphics.stanford.edu/~seander/bithacks.html.
func plainEnd(text []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(text); i += 8 {
		w := binary.LittleEndian.Uint64(text[i:])
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		found := (w - ones*' ') & ^w     // less than a space
		found |= (quote - ones) & ^quote // zero: a quotation mark
		found |= (slash - ones) & ^slash // zero: a backslash
		if found &= highs; found != 0 {  // a byte before the one that is found may be marked too, never one that is skipped
			break
		}
	}
	for ; i < len(text); i++ {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' {
			return i
		}
	}
	return i
}

// escaped reads the rest of a string that begins at from, and whose first byte of interest is at i.
func (r *jsonReader) escaped(from, i int) ([]byte, bool) {
	size := bytes.IndexByte(r.message[i:], '"') // a guess: the string may have quotation marks
	out := make([]byte, 0, i-from+max(size, 0))
	for {
		out = append(out, r.message[from:i]...)
		if i >= len(r.message) || r.message[i] < ' ' {
			return nil, r.broken()
		}
		if r.message[i] == '"' {
			r.i = i + 1
			return out, true
		}
		var ok bool
		if out, i, ok = unescape(out, r.message, i+1); !ok {
			return nil, r.broken()
		}
		from, i = i, plainEnd(r.message, i)
	}
}

// unescape appends what the escape means whose letter is at i, and returns the offset after it. A surrogate without
// its other half becomes U+FFFD, as in encoding/json.
func unescape(out, text []byte, i int) ([]byte, int, bool) {
	if i >= len(text) {
		return out, i, false
	}
	switch c := text[i]; c {
	case '"', '\\', '/':
		return append(out, c), i + 1, true
	case 'b':
		return append(out, '\b'), i + 1, true
	case 'f':
		return append(out, '\f'), i + 1, true
	case 'n':
		return append(out, '\n'), i + 1, true
	case 'r':
		return append(out, '\r'), i + 1, true
	case 't':
		return append(out, '\t'), i + 1, true
	case 'u':
		r, ok := hex4(text, i+1)
		if !ok {
			return out, i, false
		}
		i += 5
		if utf16.IsSurrogate(r) {
			low := rune(-1)
			if i+1 < len(text) && text[i] == '\\' && text[i+1] == 'u' {
				low, _ = hex4(text, i+2)
			}
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				i += 6
			}
		}
		return utf8.AppendRune(out, r), i, true
	}
	return out, i, false
}

// hex4 returns the number of four hexadecimal digits at i.
func hex4(text []byte, i int) (rune, bool) {
	if len(text)-i < 4 {
		return -1, false
	}
	n, err := strconv.ParseUint(string(text[i:i+4]), 16, 16)
	return rune(n), err == nil
}
