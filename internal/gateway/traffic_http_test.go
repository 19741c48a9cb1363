package gateway_test

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tidewire/tidewire/internal/wire/spec"
)

// recordingTransport records the requests of /v1 and their answers.
type recordingTransport struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (t recordingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.Transport.RoundTrip(r)
	if err != nil || !strings.HasPrefix(r.URL.Path, "/v1/") || r.Method == http.MethodOptions || r.Method == http.MethodHead {
		return resp, err
	}
	body := &recordedBody{ReadCloser: resp.Body, of: resp, asked: r}
	if resp.Body = body; resp.StatusCode >= http.StatusBadRequest { // a test may look at the status alone
		text, err := io.ReadAll(body)
		if err != nil {
			return nil, err
		}
		body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(text))
	}
	return resp, nil
}

// maxRecorded is the size of the largest answer that is recorded.
const maxRecorded = 4 << 20

// recordedBody keeps the body of an answer while it is read.
type recordedBody struct {
	io.ReadCloser
	of    *http.Response
	asked *http.Request
	kept  []byte
	whole bool
}

// Read implements io.Reader.
func (b *recordedBody) Read(to []byte) (int, error) {
	n, err := b.ReadCloser.Read(to)
	if len(b.kept) <= maxRecorded {
		b.kept = append(b.kept, to[:n]...)
	}
	if err == io.EOF && !b.whole {
		b.whole = true
		recorded.exchange(b.asked, b.of, b.kept)
	}
	return n, err
}

// Close implements io.Closer. A decoder may have read the whole JSON without the end.
func (b *recordedBody) Close() error {
	events := strings.HasPrefix(b.of.Header.Get("Content-Type"), "text/event-stream")
	if !b.whole && (events || json.Valid(b.kept)) {
		b.whole = true
		recorded.exchange(b.asked, b.of, b.kept)
	}
	return b.ReadCloser.Close()
}

// patterns finds the route of a request.
var patterns = func() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range spec.Routes() {
		mux.Handle(r.Pattern(), http.NotFoundHandler())
	}
	return mux
}()

// exchange compares a request of /v1 and its answer with their descriptions.
func (t *traffic) exchange(r *http.Request, resp *http.Response, answer []byte) {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if len(answer) > maxRecorded || kind != "application/json" && kind != "text/event-stream" {
		return
	}
	_, pattern := patterns.Handler(r)
	i := slices.IndexFunc(routes, func(one spec.Route) bool { return one.Pattern() == pattern })
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case resp.StatusCode != http.StatusOK:
		t.failed(i, resp.StatusCode, answer)
	case i < 0:
		t.problem("the server answered a request that is not described: "+r.Method+" "+r.URL.Path, nil, nil)
	default:
		t.seen["route "+pattern] = true
		t.carriedOut(&routes[i], r)
		if kind == "text/event-stream" {
			t.events(&routes[i], answer)
			return
		}
		t.valid("answer of "+pattern, jsonOf(answer))
	}
}

var routes = spec.Routes()

// jsonOf decodes an answer. Its numbers keep their digits.
func jsonOf(text []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	d.Decode(&v)
	return v
}

// failed compares an error, of the i-th route.
func (t *traffic) failed(i, status int, answer []byte) {
	whole, _ := jsonOf(answer).(map[string]any)
	problem, _ := whole["error"].(map[string]any)
	code, _ := problem["code"].(string)
	t.valid("object problem", problem)
	t.code(code)
	for _, e := range spec.Errors() {
		if e.Code == code && e.Status != status {
			t.problem("code "+code+" came with a status that is not described", status, nil)
		}
	}
	if i >= 0 && !slices.Contains(routes[i].AllCodes(), code) {
		t.problem("the server answered "+routes[i].Pattern()+" with code "+code+", which its Codes do not have", whole, nil)
	}
}

// carriedOut compares a request that was carried out.
func (t *traffic) carriedOut(route *spec.Route, r *http.Request) {
	given := make(map[string]any)
	for _, f := range route.Query {
		values := r.URL.Query()[f.Name]
		if len(values) > 0 {
			given[f.Name] = parameter(f.Schema, values)
		}
	}
	t.accepts("query of "+route.Pattern(), given)
	headers := make(map[string]any)
	for _, f := range route.Headers {
		if text := r.Header.Get(f.Name); text != "" {
			headers[f.Name] = parameter(f.Schema, []string{text})
		}
	}
	t.accepts("header of "+route.Pattern(), headers)
	if route.Body == nil || r.GetBody == nil || r.URL.Query().Has("raw") {
		return
	}
	body, err := r.GetBody()
	if err != nil {
		return
	}
	text, err := io.ReadAll(body)
	if err == nil && (len(bytes.TrimSpace(text)) > 0 || !route.NoBody) {
		t.accepts("body of "+route.Pattern(), plainly(jsonOf(text)))
	}
}

// accepts compares a part of a request that was accepted.
func (t *traffic) accepts(name string, v any) {
	if err := t.described[name].Validate(v); err != nil {
		t.problem("the server accepted a request that is not as described: "+name, v, err)
	}
	t.mark(name, v)
}

// parameter is a parameter as JSON.
func parameter(s *spec.Schema, values []string) any {
	switch s.Type {
	case "array":
		all := []any{}
		for _, v := range values {
			all = append(all, v)
		}
		return all
	case "integer":
		if n, err := strconv.ParseInt(values[0], 10, 64); err == nil {
			return n
		}
	}
	return values[0]
}

// events compares server-sent events.
func (t *traffic) events(route *spec.Route, text []byte) {
	for one := range strings.SplitSeq(string(text), "\n\n") {
		fields := make(url.Values)
		for line := range strings.SplitSeq(one, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			fields.Add(name, value)
		}
		data, ok := jsonOf([]byte(fields.Get("data"))).(map[string]any)
		switch kind := fields.Get("event"); {
		case !ok: // a comment, or cut off
		case kind == route.EventName:
			t.valid("data of "+route.Pattern(), data)
		case slices.Contains(route.OtherEvents, kind):
			t.valid("message "+kind, data)
		case kind == spec.ErrorType:
			t.valid("message error", data)
			code, _ := data["code"].(string)
			t.code(code)
		default:
			t.problem("the server sent an event "+kind+" that is not described: "+route.Pattern(), data, nil)
		}
	}
}
