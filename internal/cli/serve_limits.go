package cli

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/tidewire/tidewire/internal/limits"
)

// limitFlags bound what one client, and all together, may take. Most have a default only in closed mode: in open mode all clients are of one
// machine, and have one address.
type limitFlags struct {
	MaxConnections        int      `default:"20000" help:"Maximum number of connections, WebSockets and HTTP. 0: no limit."`
	MaxUserConnections    *int     `placeholder:"20" help:"Maximum number of WebSockets of one user, and of its HTTP requests in progress. API keys have no such limit. 0: no limit. Default: 20 with tokens, or no limit."`
	MaxAddressConnections *int     `placeholder:"200" help:"Maximum number of connections of one client address; an IPv6 address counts with all of its /64. 0: no limit. Default: 200 with tokens, or no limit."`
	MaxPending            *int     `placeholder:"1000" help:"Maximum number of connections whose client is not known yet, 20 of them from one address. 0: no limit. Default: 1000 with tokens, or no limit."`
	TrustedProxy          []string `placeholder:"CIDR" help:"Network of proxies, such as 10.0.0.0/8, whose X-Forwarded-For says what a client's address is. May be repeated."`
	RequestRate           *float64 `placeholder:"1000" help:"Messages a second that a connection may send, and twice as many at once. A user may send four times as many on all its connections and by HTTP. API keys have no rate. 0: no limit. Default: 1000 with tokens, or no limit."`
	ByteRate              *bytes   `placeholder:"SIZE" help:"The same for bytes. Default: 8MiB with tokens, or no limit."`
	MaxUserQueries        *int     `placeholder:"4" help:"Maximum number of requests of one user that PostgreSQL works on at a time; the others wait. Messages to store do not count: they are stored in groups. API keys have no such limit. 0: no limit. Default: 4 with tokens, or no limit."`
	MaxRooms              int      `default:"100" help:"Maximum number of rooms that a connection may be in."`
	MaxSubscriptions      int      `default:"100" help:"Maximum number of subscriptions and consumptions of a connection, together."`
	MaxJSONDepth          int      `name:"max-json-depth" default:"64" help:"Maximum depth of the JSON that a client sends."`
	MaxHeaderBytes        bytes    `default:"16KiB" help:"Maximum size of the header of an HTTP request, and of a WebSocket handshake."`
}

// The defaults in closed mode.
const (
	closedUserConnections    = 20
	closedAddressConnections = 200
	closedPending            = 1000
	closedRequestRate        = 1000
	closedUserQueries        = 4
	closedByteRate           = 8 << 20
)

// inMode returns the value of a flag: the default of closed mode if none is given, and no limit in open mode.
func inMode[T int | float64 | bytes](given *T, closed bool, value T) T {
	switch {
	case given != nil:
		return *given
	case closed:
		return value
	}
	return 0
}

// defaultOf returns the default of a flag that depends on the mode, or "" for any other flag.
func (f *limitFlags) defaultOf(name string, closed bool) string {
	value, depends := map[string]int{
		"max-user-connections": closedUserConnections, "max-address-connections": closedAddressConnections, "max-pending": closedPending, "max-user-queries": closedUserQueries,
		"request-rate": closedRequestRate, "byte-rate": closedByteRate,
	}[name]
	switch {
	case !depends:
		return ""
	case !closed:
		return "0"
	}
	return strconv.Itoa(value)
}

// check rejects values that cannot be.
func (f *limitFlags) check() error {
	for _, n := range []struct {
		flag  string
		value int
		least int
	}{
		{"max-connections", f.MaxConnections, 0}, {"max-user-connections", inMode(f.MaxUserConnections, false, 0), 0},
		{"max-address-connections", inMode(f.MaxAddressConnections, false, 0), 0}, {"max-pending", inMode(f.MaxPending, false, 0), 0},
		{"max-user-queries", inMode(f.MaxUserQueries, false, 0), 0},
		{"max-rooms", f.MaxRooms, 1}, {"max-subscriptions", f.MaxSubscriptions, 1}, {"max-json-depth", f.MaxJSONDepth, 4},
	} {
		if n.value < n.least {
			return fmt.Errorf("--%s is %d: want %d or more", n.flag, n.value, n.least)
		}
	}
	if rate := inMode(f.RequestRate, false, 0); !(rate >= 0 && rate <= 1e9) {
		return fmt.Errorf("--request-rate is %v: want 0 to 1000000000", rate)
	}
	if f.MaxHeaderBytes < 8<<10 || f.MaxHeaderBytes > 1<<20 {
		return errors.New("--max-header-bytes: want 8KiB to 1MiB")
	}
	_, err := f.proxies()
	return err
}

func (f *limitFlags) proxies() (limits.Proxies, error) {
	var list limits.Proxies
	for _, text := range f.TrustedProxy {
		network, err := limits.ParseNetwork(text)
		if err != nil {
			return nil, fmt.Errorf("--trusted-proxy %s: want an address or a network, such as 10.0.0.0/8", text)
		}
		list = append(list, network)
	}
	return list, nil
}

// limits returns the limits of a server.
func (f *limitFlags) limits(closed bool, maxMessage bytes, p *process) *limits.Registry {
	proxies, _ := f.proxies() // checked before
	return limits.New(limits.Config{
		Connections:        f.fitting(p),
		UserConnections:    inMode(f.MaxUserConnections, closed, closedUserConnections),
		AddressConnections: inMode(f.MaxAddressConnections, closed, closedAddressConnections),
		Pending:            inMode(f.MaxPending, closed, closedPending),
		RequestRate:        inMode(f.RequestRate, closed, closedRequestRate),
		ByteRate:           int64(inMode(f.ByteRate, closed, closedByteRate)),
		UserQueries:        inMode(f.MaxUserQueries, closed, closedUserQueries),
		MaxMessage:         int(maxMessage), Proxies: proxies, Log: p.log,
	})
}

// ownFiles is how many descriptors a server may need beside those of its clients: connections to PostgreSQL, files, listeners, and the sockets that are
// accepted to be refused.
const ownFiles = 300

// fitting returns --max-connections, or as many as the descriptors of the process allow. It warns of that only if the number was
// chosen: the default is for large machines.
func (f *limitFlags) fitting(p *process) int {
	files, ok := maxFiles()
	most := max(files-ownFiles, files/2)
	if !ok || f.MaxConnections > 0 && f.MaxConnections <= most {
		return f.MaxConnections
	}
	if p.changed["max-connections"] {
		p.log.Warn("the process may not have that many file descriptors: the limit of connections is lower; raise it with ulimit -n, or LimitNOFILE= of systemd",
			"max_connections", f.MaxConnections, "file_descriptors", files, "limit", most)
	}
	return most
}
