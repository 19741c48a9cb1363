package tidewire_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/clients/go"
)

// real returns a client of the real server, and the name of a new stream and queue.
func real(t *testing.T, o tidewire.Options) (*tidewire.Client, context.Context, string) {
	t.Helper()
	url := os.Getenv("TIDEWIRE_URL")
	if url == "" {
		t.Skip("TIDEWIRE_URL is not set: start `tidewire serve`, and set it to ws://localhost:8080/ws")
	}
	c, err := tidewire.Open(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	name := fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), time.Now().UnixNano())
	base := "http" + strings.TrimSuffix(strings.TrimPrefix(url, "ws"), "/ws")
	for _, path := range []string{"/v1/streams/" + name, "/v1/queues/jobs-" + name} {
		response, err := http.Post(base+path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode >= 300 {
			t.Fatalf("%s: %s", path, response.Status)
		}
	}
	return c, ctx, name
}

// encodings runs a test with each of them.
func encodings(t *testing.T, test func(t *testing.T, o tidewire.Options)) {
	t.Run("json", func(t *testing.T) { test(t, tidewire.Options{Encoding: tidewire.JSON}) })
	t.Run("cbor", func(t *testing.T) { test(t, tidewire.Options{Encoding: tidewire.CBOR}) })
}

func TestAnyBytesGoThroughAStream(t *testing.T) {
	encodings(t, func(t *testing.T, o tidewire.Options) {
		c, ctx, name := real(t, o)
		payloads := []string{"", "text", "\x00\xff\xfe", "é\u2028\"\\\n", strings.Repeat("long", 20000)}
		headers := map[string]any{"text": "é", "number": 7.0, "list": []any{true, nil, "x"}, "big": 1e300}
		for _, p := range payloads {
			if _, err := c.Stream(name).Publish(ctx, []byte(p), tidewire.Key("k"), tidewire.Headers(headers)); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for m, err := range c.Stream(name).Messages(ctx, tidewire.FromStart()) {
			if err != nil {
				t.Fatal(err)
			}
			if string(m.Value) != payloads[n] || m.Key != "k" || m.Time.IsZero() || fmt.Sprint(m.Headers) != fmt.Sprint(headers) {
				t.Errorf("message %d: %q %q %v %v", n, m.Value, m.Key, m.Time, m.Headers)
			}
			if n++; n == len(payloads) {
				break
			}
		}
	})
}
