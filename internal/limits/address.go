package limits

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// Key is what a client address counts as: an IPv4 address as itself, and an IPv6 address as its /64, of which one customer has all addresses. The zero
// Addr, of a peer without an IP address, counts for none.
func Key(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if !a.Is6() {
		return a
	}
	return netip.PrefixFrom(a.WithZone(""), 64).Masked().Addr()
}

// Proxies are networks of proxies whose X-Forwarded-For is believed.
type Proxies []netip.Prefix

// ParseNetwork parses a network, such as 10.0.0.0/8, or an address, which is a network of one. IPv4 ones may be written as IPv6, such as
// ::ffff:10.0.0.0/104.
func ParseNetwork(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	if err != nil {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, err
		}
		network = netip.PrefixFrom(a, a.BitLen())
	}
	if a := network.Addr(); a.Is4In6() {
		const before = 96 // bits before the IPv4 address
		if network.Bits() < before {
			return netip.Prefix{}, fmt.Errorf("%s has IPv4 and other addresses", text)
		}
		network = netip.PrefixFrom(a.Unmap(), network.Bits()-before)
	}
	return network.Masked(), nil
}

// Trusts reports whether an address is a proxy's.
func (p Proxies) Trusts(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	for _, network := range p {
		if network.Contains(a) {
			return true
		}
	}
	return false
}

// Client returns the address of a request's client: the peer's, unless that is a proxy. Each proxy has added the address of its own peer to X-Forwarded-For,
// so that is read from the right, as long as the addresses are those of proxies. Entries before the first malformed one are not believed.
// The zero Addr is a peer without an IP address.
func (p Proxies) Client(r *http.Request) netip.Addr {
	client := parseAddr(r.RemoteAddr)
	if len(p) == 0 || !p.Trusts(client) {
		return client
	}
	lines := r.Header.Values("X-Forwarded-For")
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			entry := rest
			at := strings.LastIndexByte(rest, ',')
			if more = at >= 0; more {
				rest, entry = rest[:at], rest[at+1:]
			}
			a := parseAddr(strings.TrimSpace(entry))
			if !a.IsValid() {
				return client
			}
			if client = a; !p.Trusts(client) {
				return client
			}
		}
	}
	return client
}

// parseAddr parses an address, with or without a port, and IPv6 with or without brackets. The zero Addr is none.
func parseAddr(text string) netip.Addr {
	if a, err := netip.ParseAddrPort(text); err == nil {
		return a.Addr().Unmap()
	}
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		text = text[1 : len(text)-1]
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap()
}
