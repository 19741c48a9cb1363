package websocket

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The parameters of permessage-deflate (RFC 7692, section 7.1).
const (
	deflateName    = "permessage-deflate"
	serverNoTake   = "server_no_context_takeover"
	clientNoTake   = "client_no_context_takeover"
	serverWindow   = "server_max_window_bits"
	clientWindow   = "client_max_window_bits"
	fullWindow     = 15 // bits: the largest window of DEFLATE, 32 KiB
	smallestWindow = 8  // bits
)

// deflateOffer is what Dial offers. No message depends on an earlier one, so neither side keeps a window.
const deflateOffer = deflateName + "; " + serverNoTake + "; " + clientNoTake

// parameter is one of an extension. Most have no value.
type parameter struct {
	name, value string
	valued      bool // a value was given, perhaps an empty one
}

// chooseDeflate returns the answer to the first acceptable offer of permessage-deflate in the client's
// Sec-WebSocket-Extensions headers, and the size of the window that the server may use, in bits. The answer is "" if there is none.
// An offer with a parameter that is unknown, invalid or there twice is declined (RFC 7692, section 7).
//
// The answer always forbids both sides to use earlier messages. So a message that is compressed once can be sent to any
// connection, and no connection keeps a window. Of client_max_window_bits nothing is used: what inflates messages has the full
// window, and only for the time of one message.
func chooseDeflate(headers []string) (answer string, window int) {
	for _, line := range headers {
		for _, offer := range splitList(line, ',') {
			name, params, err := parseExtension(offer)
			if err != nil || name != deflateName {
				continue
			}
			window, err := offeredWindow(params)
			if err != nil {
				continue
			}
			answer := deflateOffer
			if window < fullWindow { // RFC 7692, section 7.1.2.1: the answer has to confirm it
				answer += "; " + serverWindow + "=" + strconv.Itoa(window)
			}
			return answer, window
		}
	}
	return "", 0
}

// offeredWindow checks the parameters of an offer, and returns the largest window that the client accepts, in bits.
func offeredWindow(params []parameter) (window int, err error) {
	window = fullWindow
	for i, p := range params {
		switch p.name {
		case serverNoTake, clientNoTake:
			err = p.flag()
		case serverWindow:
			window, err = p.bits()
		case clientWindow:
			if p.valued { // it needs none in an offer
				_, err = p.bits()
			}
		default:
			err = fmt.Errorf("unknown parameter %q", p.name)
		}
		if err = errors.Join(err, duplicate(params[:i], p.name)); err != nil {
			return 0, err
		}
	}
	return window, nil
}

// acceptDeflate checks the server's answer to deflateOffer, and reports whether it accepts. An answer that is neither that
// nor a refusal has to fail the connection (RFC 7692, section 7.1).
func acceptDeflate(headers []string) (bool, error) {
	var list []string
	for _, line := range headers {
		list = append(list, splitList(line, ',')...)
	}
	if len(list) == 0 {
		return false, nil
	}
	name, params, err := parseExtension(list[0])
	if err != nil || len(list) > 1 || name != deflateName {
		return false, fmt.Errorf("server answered with extensions %q: want %s once, or none", strings.Join(list, ", "), deflateName)
	}
	alone := false
	for i, p := range params {
		var err error
		switch p.name {
		case serverNoTake:
			alone, err = true, p.flag()
		case clientNoTake:
			err = p.flag()
		case serverWindow:
			_, err = p.bits() // it may also say so unasked
		default: // client_max_window_bits was not offered
			err = fmt.Errorf("parameter %q was not offered", p.name)
		}
		if err = errors.Join(err, duplicate(params[:i], p.name)); err != nil {
			return false, fmt.Errorf("server answered with %s: %w", deflateName, err)
		}
	}
	if !alone {
		return false, fmt.Errorf("server answered with %s without %s, which was asked for", deflateName, serverNoTake)
	}
	return true, nil
}

func (p parameter) flag() error {
	if p.valued {
		return fmt.Errorf("%s has a value: want none", p.name)
	}
	return nil
}

// bits is the size of a window: 8 to 15, without leading zeros.
func (p parameter) bits() (int, error) {
	n, err := strconv.Atoi(p.value)
	if err != nil || n < smallestWindow || n > fullWindow || strconv.Itoa(n) != p.value {
		return 0, fmt.Errorf("%s is %q: want %d to %d", p.name, p.value, smallestWindow, fullWindow)
	}
	return n, nil
}

func duplicate(before []parameter, name string) error {
	for _, p := range before {
		if p.name == name {
			return fmt.Errorf("%s is there twice", name)
		}
	}
	return nil
}

// parseExtension parses one element of a Sec-WebSocket-Extensions header (RFC 6455, section 9.1).
func parseExtension(s string) (name string, params []parameter, err error) {
	parts := splitList(s, ';')
	if len(parts) == 0 {
		return "", nil, errors.New("empty extension")
	}
	for _, part := range parts[1:] {
		p := parameter{}
		p.name, p.value, p.valued = strings.Cut(part, "=")
		p.name = strings.TrimRight(p.name, " \t")
		if p.value, err = unquote(strings.TrimLeft(p.value, " \t")); err != nil {
			return "", nil, err
		}
		params = append(params, p)
	}
	return parts[0], params, nil
}

// splitList splits s at each sep that is not in a quoted string. It leaves out empty elements, and the spaces around the others.
func splitList(s string, sep byte) (list []string) {
	quoted, start := false, 0
	for i := 0; i <= len(s); i++ {
		switch {
		case i == len(s) || s[i] == sep && !quoted:
			if part := strings.Trim(s[start:i], " \t"); part != "" {
				list = append(list, part)
			}
			start = i + 1
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '\\' && quoted:
			i = min(i+1, len(s)-1)
		}
	}
	return list
}

// unquote removes the quotes of a quoted string. A value without quotes stays as it is.
func unquote(s string) (string, error) {
	if s == "" || s[0] != '"' {
		return s, nil
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"' && i == len(s)-1:
			return b.String(), nil
		case s[i] == '"':
			return "", fmt.Errorf("text after the quotes in %q", s)
		case s[i] == '\\' && i < len(s)-1:
			i++
		}
		b.WriteByte(s[i])
	}
	return "", fmt.Errorf("no closing quote in %q", s)
}
