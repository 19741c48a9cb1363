package websocket

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func access(t *testing.T, cfg AccessConfig) *Access {
	t.Helper()
	a, err := NewAccess(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// visit returns a request of a web page to a server.
func visit(url string, header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, url, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// status returns the status of Check's error, 200 if there is none.
func status(t *testing.T, a *Access, r *http.Request) int {
	t.Helper()
	err := a.Check(r)
	if err == nil {
		return 200
	}
	refused, ok := errors.AsType[*HandshakeError](err)
	if !ok || strings.Contains(refused.Reason, "\n") || !strings.Contains(refused.Reason, "--allow") {
		t.Errorf("%v does not say what to do", err)
	}
	return refused.Status
}

func TestAccess_origin(t *testing.T) {
	t.Parallel()
	exact := []string{"https://app.example.com"}
	below := []string{"https://*.example.com"}
	for _, test := range []struct {
		server, origin string
		allowed        []string
		want           int
	}{
		// The server's own pages.
		{"http://a.example:8080", "http://a.example:8080", nil, 200},
		{"http://a.example:80", "http://a.example", nil, 200},
		{"https://a.example:443", "https://a.example", nil, 200},
		{"http://A.Example:8080", "HTTP://a.eXample:8080", nil, 200},
		{"http://a.example:8080", "http://a.example.:8080", nil, 200},
		{"http://[::1]:8080", "http://[0:0::1]:8080", nil, 200},
		{"http://a.example:8080", "http://a.example:8081", nil, 403},
		{"http://a.example:8080", "https://a.example:8080", nil, 403},
		{"https://a.example", "http://a.example:443", nil, 403},
		{"http://a.example:8080", "http://b.example:8080", nil, 403},
		// No origins at all.
		{"http://a.example:8080", "null", exact, 403},
		{"http://a.example:8080", "file://", exact, 403},
		{"http://a.example:8080", "", exact, 403},
		{"http://a.example:8080", "a.example:8080", exact, 403},
		{"http://a.example:8080", "http://a.example:8080/", exact, 403},
		{"http://a.example:8080", "http://u@a.example:8080", exact, 403},
		{"http://a.example:8080", "http://a.example:8080#f", exact, 403},
		{"http://a.example:8080", "http://%61.example:8080", exact, 403},
		{"http://a.example:8080", "http://a.example:", exact, 403},
		{"http://a.example:8080", "http://[::1", exact, 403},
		{"http://a.example:8080", "http://a..example:8080", exact, 403},
		// Allowed ones, exact.
		{"http://a.example", "https://app.example.com", exact, 200},
		{"http://a.example", "https://APP.example.com", exact, 200},
		{"http://a.example", "https://app.example.com:443", exact, 200},
		{"http://a.example", "https://app.example.com.evil.com", exact, 403},
		{"http://a.example", "https://x.app.example.com", exact, 403},
		{"http://a.example", "http://[::1]:5173", []string{"http://[0::1]:5173"}, 200},
		{"http://a.example", "http://localhost:5174", []string{"http://localhost:5173"}, 403},
		{"http://a.example", "capacitor://localhost", []string{"capacitor://localhost"}, 200},
		// Names below a domain.
		{"http://a.example", "https://app.example.com", below, 200},
		{"http://a.example", "https://a.b.example.com", below, 200},
		{"http://a.example", "https://example.com", below, 403},
		{"http://a.example", "https://evilexample.com", below, 403},
		{"http://a.example", "https://.example.com", below, 403},
		{"http://a.example", "https://app.example.com:8443", below, 403},
		{"http://a.example", "https://app.example.com:8443", []string{"https://*.example.com:8443"}, 200},
		{"http://a.example", "https://b.example", []string{"https://c.example", "https://b.example"}, 200},
	} {
		r := visit(test.server, "Origin", test.origin)
		if got := status(t, access(t, AccessConfig{Origins: test.allowed}), r); got != test.want {
			t.Errorf("page %q of server %q with %q: %d, want %d", test.origin, test.server, test.allowed, got, test.want)
		}
	}
}

func TestAccess_withoutOrigin(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		header []string
		want   int
	}{
		{nil, 200},
		{[]string{"Sec-Fetch-Site", "same-origin"}, 200},
		{[]string{"Sec-Fetch-Site", "none"}, 200},
		{[]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{[]string{"Sec-Fetch-Site", "same-site"}, 403},
		{[]string{"Origin", "http://a.example", "Origin", "http://a.example"}, 403},
		// A proxy that ends TLS.
		{[]string{"Origin", "https://a.example", "X-Forwarded-Proto", "https"}, 200},
		{[]string{"Origin", "https://a.example", "X-Forwarded-Proto", "HTTPS, http"}, 200},
		{[]string{"Origin", "http://a.example", "X-Forwarded-Proto", "https"}, 403},
		{[]string{"Origin", "https://a.example", "X-Forwarded-Proto", "http"}, 403},
	} {
		var none *Access
		if got := status(t, none, visit("http://a.example", test.header...)); got != test.want {
			t.Errorf("%q: %d, want %d", test.header, got, test.want)
		}
	}
	secure := visit("http://a.example", "Origin", "https://a.example")
	secure.TLS = &tls.ConnectionState{}
	if got := status(t, nil, secure); got != 200 {
		t.Errorf("over TLS: %d", got)
	}
}

func TestAccess_host(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		host  string
		hosts []string
		want  int
	}{
		{"localhost:8080", nil, 200},
		{"LOCALHOST.:8080", nil, 200},
		{"app.localhost:8080", nil, 200},
		{"127.0.0.1:8080", nil, 200},
		{"[::1]:8080", nil, 200},
		{"[::ffff:127.0.0.1]:8080", nil, 200},
		{"", nil, 200},
		{"evil.com:8080", nil, 421},
		{"evillocalhost", nil, 421},
		{"127.0.0.1.evil.com", nil, 421},
		{"0.0.0.0:8080", nil, 421},
		{"[::2]", nil, 421},
		{"localhost:80:80", nil, 421},
		{"[::1", nil, 421},
		{"rt.example.com:443", []string{"rt.example.com"}, 200},
		{"RT.example.com.", []string{"rt.example.com"}, 200},
		{"rt.example.com", []string{"*.example.com"}, 200},
		{"example.com", []string{"*.example.com"}, 421},
		{"[fd00::1]:80", []string{"fd00::1"}, 200},
	} {
		r := visit("http://x", "X", "y")
		r.Host = test.host
		if got := status(t, access(t, AccessConfig{Loopback: true, Hosts: test.hosts}), r); got != test.want {
			t.Errorf("host %q with %q: %d, want %d", test.host, test.hosts, got, test.want)
		}
		if got := status(t, access(t, AccessConfig{Hosts: test.hosts}), r); got != 200 {
			t.Errorf("host %q of a server that is no loopback's: %d", test.host, got)
		}
	}
	rebound := visit("http://evil.com:8080", "Origin", "http://evil.com:8080")
	if got := status(t, access(t, AccessConfig{Loopback: true}), rebound); got != 421 {
		t.Errorf("a page whose name resolves to this machine: %d", got)
	}
}

func TestAccess_CrossOrigin(t *testing.T) {
	t.Parallel()
	a := access(t, AccessConfig{Origins: []string{"https://*.example.com", "http://a.example"}})
	for origin, want := range map[string]bool{
		"https://app.example.com": true, "http://a.example": false, "https://b.example": false, "null": false, "": false,
	} {
		if got, ok := a.CrossOrigin(visit("http://a.example", "Origin", origin)); ok != want || ok && got != origin {
			t.Errorf("%q: %q, %v", origin, got, ok)
		}
	}
}

func TestNewAccess_malformed(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", "*", "null", "app.example.com", "https://", "https://app.example.com/", "https://app.example.com/x", "https://a b",
		"https://*", "https://*.com", "https://*.", "https://*example.com", "https://app.*.com", "https://*.*.example.com", "https://u@example.com",
		"https://example.com:x", "https://*.127.0.0.1", "https://[::1", "file://", "://x.example", "https://é.example",
	} {
		if _, err := NewAccess(AccessConfig{Origins: []string{s}}); err == nil || !strings.Contains(err.Error(), "such as https://app.example.com") {
			t.Errorf("origin %q: %v", s, err)
		}
	}
	for _, s := range []string{"", "*", "https://a.example", "a.example:80", "*.com", "a b", "a..b", "[::1", "*.::1", "a.example/x"} {
		if _, err := NewAccess(AccessConfig{Hosts: []string{s}}); err == nil || !strings.Contains(err.Error(), "such as rt.example.com") {
			t.Errorf("host %q: %v", s, err)
		}
	}
}

func FuzzAccess(f *testing.F) {
	f.Add("https://app.example.com", "a.example:80", "https://*.example.com")
	f.Add("null", "[::1]:80", "http://[::1]:5173")
	f.Fuzz(func(t *testing.T, page, host, pattern string) {
		a, err := NewAccess(AccessConfig{Origins: []string{pattern}, Loopback: true})
		if err != nil {
			a = nil
		}
		r := visit("http://x", "Origin", page)
		r.Host = host
		if a.Check(r) != nil {
			return
		}
		o, ok := parseOrigin(page)
		if !ok {
			t.Fatalf("page %q is accepted", page)
		}
		if server, _, _ := splitHost(host); o.host == server {
			return
		}
		_, domain, below := strings.Cut(strings.ToLower(pattern), "://*.")
		if a == nil || below && !strings.HasSuffix(o.host, "."+strings.TrimSuffix(strings.Split(domain, ":")[0], ".")) {
			t.Errorf("page %q of server %q with pattern %q is accepted", page, host, pattern)
		}
	})
}
