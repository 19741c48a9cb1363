package websocket

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

func TestChooseDeflate(t *testing.T) {
	t.Parallel()
	const plain = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
	for _, test := range []struct {
		offers []string // each is a header
		answer string
	}{
		{nil, ""},
		{[]string{""}, ""},
		{[]string{"permessage-deflate"}, plain},
		{[]string{"permessage-deflate; client_max_window_bits"}, plain}, // Chrome, Firefox
		{[]string{"permessage-deflate;client_max_window_bits"}, plain},
		{[]string{" \tpermessage-deflate\t;\tclient_max_window_bits\t"}, plain},
		{[]string{"permessage-deflate; client_max_window_bits=8"}, plain},
		{[]string{"permessage-deflate; client_max_window_bits=15"}, plain},
		{[]string{"permessage-deflate; server_no_context_takeover"}, plain},
		{[]string{"permessage-deflate; client_no_context_takeover; server_no_context_takeover"}, plain},
		{[]string{"permessage-deflate; server_max_window_bits=15"}, plain},
		{[]string{"permessage-deflate; server_max_window_bits=10"}, plain + "; server_max_window_bits=10"},
		{[]string{"permessage-deflate; server_max_window_bits=8; client_max_window_bits"}, plain + "; server_max_window_bits=8"},
		{[]string{`permessage-deflate; server_max_window_bits="10"`}, plain + "; server_max_window_bits=10"},
		{[]string{`permessage-deflate; server_max_window_bits = "1\0"`}, plain + "; server_max_window_bits=10"},

		{[]string{"permessage-deflate; server_max_window_bits"}, ""},
		{[]string{"permessage-deflate; server_max_window_bits="}, ""},
		{[]string{"permessage-deflate; server_max_window_bits=7"}, ""},
		{[]string{"permessage-deflate; server_max_window_bits=16"}, ""},
		{[]string{"permessage-deflate; server_max_window_bits=010"}, ""},
		{[]string{"permessage-deflate; server_max_window_bits=+10"}, ""},
		{[]string{"permessage-deflate; server_max_window_bits=1e1"}, ""},
		{[]string{"permessage-deflate; server_max_window_bits=99999999999999999999"}, ""},
		{[]string{`permessage-deflate; server_max_window_bits="10`}, ""},
		{[]string{`permessage-deflate; server_max_window_bits="10"0`}, ""},
		{[]string{"permessage-deflate; client_max_window_bits="}, ""},
		{[]string{"permessage-deflate; client_max_window_bits=7"}, ""},
		{[]string{"permessage-deflate; client_max_window_bits=16"}, ""},
		{[]string{"permessage-deflate; server_no_context_takeover=1"}, ""},
		{[]string{"permessage-deflate; client_no_context_takeover="}, ""},
		{[]string{"permessage-deflate; unknown"}, ""},
		{[]string{"permessage-deflate; server_no_context_takeover; server_no_context_takeover"}, ""},
		{[]string{"permessage-deflate; client_no_context_takeover; client_no_context_takeover"}, ""},
		{[]string{"permessage-deflate; client_max_window_bits; client_max_window_bits=10"}, ""},
		{[]string{"permessage-deflate; server_max_window_bits=10; server_max_window_bits=10"}, ""},
		{[]string{"permessage-deflate; SERVER_NO_CONTEXT_TAKEOVER"}, ""},
		{[]string{"x-webkit-deflate-frame", "permessage-bzip2"}, ""},

		{[]string{"permessage-deflate; unknown, permessage-deflate; server_max_window_bits=9, permessage-deflate"}, plain + "; server_max_window_bits=9"},
		{[]string{"permessage-deflate; server_max_window_bits=7", "permessage-deflate"}, plain},
		{[]string{"x-webkit-deflate-frame, , permessage-deflate; client_max_window_bits"}, plain},
		{[]string{`other; a="b, permessage-deflate; c"`}, ""},
		{[]string{`other; a="b\", permessage-deflate"`, "permessage-deflate"}, plain},
	} {
		answer, window := chooseDeflate(test.offers)
		if answer != test.answer {
			t.Errorf("%q: answered %q, want %q", test.offers, answer, test.answer)
		}
		if answer == plain && window != 15 || answer == "" && window != 0 {
			t.Errorf("%q: window of %d bits", test.offers, window)
		}
	}
}

func TestAcceptDeflate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		answers []string
		accepts bool
		wrong   string // part of the error
	}{
		{nil, false, ""},
		{[]string{"permessage-deflate; server_no_context_takeover"}, true, ""},
		{[]string{"permessage-deflate; server_no_context_takeover; client_no_context_takeover"}, true, ""},
		{[]string{"permessage-deflate; server_no_context_takeover; server_max_window_bits=10"}, true, ""},
		{[]string{"permessage-deflate"}, false, "without server_no_context_takeover"},
		{[]string{"permessage-deflate; server_no_context_takeover; client_max_window_bits=10"}, false, "not offered"},
		{[]string{"permessage-deflate; server_no_context_takeover; mode"}, false, "not offered"},
		{[]string{"permessage-deflate; server_no_context_takeover; server_max_window_bits"}, false, "want 8 to 15"},
		{[]string{"permessage-deflate; server_no_context_takeover=on"}, false, "has a value"},
		{[]string{"permessage-deflate; server_no_context_takeover; server_no_context_takeover"}, false, "twice"},
		{[]string{"permessage-deflate; server_no_context_takeover", "permessage-deflate"}, false, "once, or none"},
		{[]string{"permessage-bzip2"}, false, "once, or none"},
		{[]string{`permessage-deflate; x="`}, false, "once, or none"},
	} {
		accepts, err := acceptDeflate(test.answers)
		if accepts != test.accepts || (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%q: %v, %v", test.answers, accepts, err)
		}
	}
}

// TestDial_extension: a server that chooses what was not offered, or in a wrong way, is refused.
func TestDial_extension(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		offer  *Compression
		answer string
		wrong  string
	}{
		{nil, deflateOffer, "extension that was not offered"},
		{&Compression{}, "permessage-deflate", "without server_no_context_takeover"},
	} {
		wsURL, config := startServer(t, "", func(w http.ResponseWriter, r *http.Request) {
			socket, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer socket.Close()
			_, _ = socket.Write(handshakeAnswer(http.Header{}, r.Header.Get("Sec-WebSocket-Key"), "", test.answer))
		})
		_, err := Dial(context.Background(), wsURL, Config{Compression: test.offer, TLS: config})
		if err == nil || !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%q: %v", test.answer, err)
		}
	}
}

// TestUpgrade_noExtension: without Config.Compression every offer is declined, and so is none with it.
func TestUpgrade_noExtension(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ server, client *Compression }{
		{nil, &Compression{}}, {&Compression{}, nil},
	} {
		server, client := pair(t, Config{Compression: test.server}, Config{Compression: test.client})
		server.AllowCompression()
		client.AllowCompression()
		if server.deflate != nil || client.deflate != nil || server.TakesCompressed() {
			t.Error("compression without an agreement")
		}
	}
}

func FuzzNegotiate(f *testing.F) {
	f.Add("permessage-deflate; client_max_window_bits", "")
	f.Add(`a; b="c, \"d", permessage-deflate; server_max_window_bits="10"`, "permessage-deflate; server_max_window_bits=9")
	f.Add("permessage-deflate; server_no_context_takeover; client_no_context_takeover, x", ",;=\"\\")
	f.Fuzz(func(t *testing.T, one, two string) {
		answer, window := chooseDeflate([]string{one, two})
		if answer == "" {
			if window != 0 {
				t.Fatalf("window of %d bits without an answer", window)
			}
		} else if again, same := chooseDeflate([]string{answer}); again != answer || same != window || window < 8 || window > 15 {
			t.Fatalf("answered %q and %d bits; taken as an offer, that is %q and %d", answer, window, again, same)
		} else if accepts, err := acceptDeflate([]string{answer}); !accepts || err != nil {
			t.Fatalf("a client refuses %q: %v", answer, err)
		}
		first, _ := chooseDeflate([]string{one})
		if first == "" {
			first, _ = chooseDeflate([]string{two})
		}
		if first != answer {
			t.Fatalf("%q and %q in two headers get %q, alone %q", one, two, answer, first)
		}
		_, _ = acceptDeflate([]string{one, two})
	})
}
