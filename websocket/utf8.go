package websocket

import "unicode/utf8"

// checkText checks text that may end inside a rune, because more of it is still
// to come. It returns how many bytes are whole, valid runes; up to three bytes
// after them are the beginning of another. ok is false as soon as no
// continuation could make the text valid.
func checkText(b []byte) (whole int, ok bool) {
	whole = len(b)
	for back := 1; back <= min(len(b), utf8.UTFMax-1); back++ {
		if tail := b[len(b)-back:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) { // false only for a beginning that can still become valid
				whole -= back
			}
			break
		}
	}
	return whole, utf8.Valid(b[:whole])
}
