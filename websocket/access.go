package websocket

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// AccessConfig says which web pages and which host names a server accepts. It
// prevents a foreign page from using a server that its visitor's browser can
// reach; it does not authenticate clients. The zero value accepts the pages of the
// server's own origin, under any host name.
type AccessConfig struct {
	// Origins are the origins of other pages that may connect: exact, such as
	// "https://app.example.com" or "http://localhost:5173", or all names below
	// a domain, "https://*.example.com". Scheme and port must match.
	Origins []string

	// Loopback says that the server listens on a loopback address. Then a
	// request must name a loopback host (localhost, a name below it, or a loopback
	// address) or one of Hosts: a page whose own name was made to resolve to the
	// visitor's machine (DNS rebinding) is of the same origin as the server.
	Loopback bool

	// Hosts are further host names under which a server with Loopback is
	// reached, for example through a proxy: "rt.example.com" or
	// "*.example.com", without a port.
	Hosts []string
}

// Access decides whether a request is accepted. It is safe for concurrent use. A
// nil *Access has the policy of the zero AccessConfig.
type Access struct {
	origins  []originPattern
	hosts    []hostPattern
	loopback bool
}

// NewAccess returns the policy of cfg. The error names the malformed origin or
// host and shows a correct one.
func NewAccess(cfg AccessConfig) (*Access, error) {
	a := &Access{loopback: cfg.Loopback}
	for _, s := range cfg.Origins {
		p, ok := parseOriginPattern(s)
		if !ok {
			return nil, fmt.Errorf("origin %q is malformed: give scheme, host and perhaps a port, such as https://app.example.com, http://localhost:5173 or https://*.example.com", s)
		}
		a.origins = append(a.origins, p)
	}
	for _, s := range cfg.Hosts {
		p, ok := parseHostPattern(s)
		if !ok {
			return nil, fmt.Errorf("host %q is malformed: give a name without scheme and port, such as rt.example.com or *.example.com", s)
		}
		a.hosts = append(a.hosts, p)
	}
	return a, nil
}

// Check returns nil if the request is accepted, else a *HandshakeError: 421 for
// a host name that is not served, 403 for a page of a foreign origin. A request
// without Origin is accepted, unless Sec-Fetch-Site says that another site made
// it: a program that is not a browser can send any Origin, so rejecting it would
// protect nothing.
func (a *Access) Check(r *http.Request) error {
	if err := a.check(r); err != nil {
		return err
	}
	return nil
}

func (a *Access) check(r *http.Request) *HandshakeError {
	if !a.servesHost(r.Host) {
		return &HandshakeError{http.StatusMisdirectedRequest,
			"this server listens on a loopback address and is not served under this host name: use localhost, or start it with --allowed-host and the name"}
	}
	origins := r.Header.Values("Origin")
	switch {
	case len(origins) == 0:
		if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
			return foreign
		}
		return nil
	case len(origins) == 1 && (a.allows(origins[0]) || sameOrigin(origins[0], r)):
		return nil
	}
	return foreign
}

var foreign = &HandshakeError{http.StatusForbidden,
	"pages of this origin may not connect: allow it with --allow-origin and the page's origin, such as https://app.example.com"}

// CrossOrigin returns the request's Origin if it is one of AccessConfig.Origins
// and not the server's own: the value of Access-Control-Allow-Origin.
func (a *Access) CrossOrigin(r *http.Request) (origin string, ok bool) {
	origin = r.Header.Get("Origin")
	if origin == "" || !a.allows(origin) || sameOrigin(origin, r) {
		return "", false
	}
	return origin, true
}

func (a *Access) allows(s string) bool {
	o, ok := parseOrigin(s)
	return ok && a != nil && slices.ContainsFunc(a.origins, func(p originPattern) bool { return p.matches(o) })
}

// servesHost reports whether requests to that host are answered. A request
// without a host does not come from a browser.
func (a *Access) servesHost(hostport string) bool {
	if a == nil || !a.loopback || hostport == "" {
		return true
	}
	host, _, ok := splitHost(hostport)
	return ok && (isLoopback(host) || slices.ContainsFunc(a.hosts, func(p hostPattern) bool { return p.matches(host) }))
}

func isLoopback(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.IsLoopback()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// sameOrigin reports whether the page comes from the server itself. Where a
// proxy ends TLS, X-Forwarded-Proto tells the scheme: a page cannot set it, and
// a program that is not a browser needs no Origin, so a false one gains
// nothing.
func sameOrigin(s string, r *http.Request) bool {
	o, ok := parseOrigin(s)
	if !ok {
		return false
	}
	scheme := "http"
	if proto, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ","); r.TLS != nil || strings.EqualFold(strings.TrimSpace(proto), "https") {
		scheme = "https"
	}
	host, port, ok := splitHost(r.Host)
	return ok && o == origin{scheme, host, portOf(scheme, port)}
}

// origin is a web origin (RFC 6454): lower case, the host without trailing dot
// and brackets, the port "" if it is the scheme's default.
type origin struct{ scheme, host, port string }

// parseOrigin parses an Origin header. It rejects "null", a value without a
// host, and a value with more than an origin.
func parseOrigin(s string) (origin, bool) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" || !strings.EqualFold(s, u.Scheme+"://"+u.Host) {
		return origin{}, false
	}
	host, port, ok := splitHost(u.Host)
	return origin{u.Scheme, host, portOf(u.Scheme, port)}, ok
}

// portOf returns "" for a scheme's default port.
func portOf(scheme, port string) string {
	if scheme == "http" && port == "80" || scheme == "https" && port == "443" {
		return ""
	}
	return port
}

// splitHost splits the value of a Host header, or the host part of an origin,
// into the normalized host and the port, if there is one.
func splitHost(s string) (host, port string, ok bool) {
	host = s
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		var err error
		if host, port, err = net.SplitHostPort(s); err != nil || port == "" || strings.Trim(port, "0123456789") != "" {
			return "", "", false
		}
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
	}
	if inner, found := strings.CutPrefix(host, "["); found {
		inner, closed := strings.CutSuffix(inner, "]")
		ip, err := netip.ParseAddr(inner)
		return ip.Unmap().String(), port, closed && err == nil && ip.Is6() && ip.Zone() == ""
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	return host, port, validName(host)
}

// validName reports whether s consists of labels of letters, digits, hyphens and
// underscores.
func validName(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

// hostPattern is one host, or all names below a domain.
type hostPattern struct {
	host  string
	below bool
}

func (p hostPattern) matches(host string) bool {
	if p.below {
		return strings.HasSuffix(host, "."+p.host)
	}
	return host == p.host
}

// parseHostPattern parses "rt.example.com", "*.example.com" or an address. It
// rejects a pattern of a whole top-level domain, except localhost.
func parseHostPattern(s string) (hostPattern, bool) {
	name, below := strings.CutPrefix(s, "*.")
	if strings.Contains(name, ":") && !strings.HasPrefix(name, "[") {
		name = "[" + name + "]"
	}
	host, port, ok := splitHost(name)
	p := hostPattern{host, below}
	if _, err := netip.ParseAddr(host); below && (err == nil || !strings.Contains(host, ".") && host != "localhost") {
		return p, false
	}
	return p, ok && port == ""
}

// originPattern is an origin, or those of all hosts below a domain.
type originPattern struct {
	origin
	host hostPattern
}

func (p originPattern) matches(o origin) bool {
	return p.scheme == o.scheme && p.port == o.port && p.host.matches(o.host)
}

func parseOriginPattern(s string) (originPattern, bool) {
	scheme, rest, found := strings.Cut(s, "://")
	name, below := strings.CutPrefix(rest, "*.")
	o, ok := parseOrigin(scheme + "://" + name)
	p := originPattern{origin: o, host: hostPattern{o.host, below}}
	if below {
		_, ok2 := parseHostPattern("*." + o.host)
		ok = ok && ok2
	}
	return p, ok && found
}
