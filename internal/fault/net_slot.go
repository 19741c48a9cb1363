package fault

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
)

const (
	slots = 256
	// nodeLink is the name of the link inside each namespace.
	nodeLink = "eth0"
	// namespaceDir is where ip has its named namespaces.
	namespaceDir = "/run/netns"
)

// ranges are the first two bytes of subnets to choose from: rarely used parts of 10/8, and of 100.64/10, which is for carriers.
var ranges = [][2]byte{{10, 213}, {10, 87}, {10, 171}, {100, 101}, {100, 77}}

// slot is a number that one Net of all processes on the machine has at a time. Names and subnets contain it, and so they are unique. An interface's name
// has at most 15 bytes, which is too short for more than a number.
type slot struct {
	number int
	lock   *os.File
}

func (s *slot) prefix() string            { return fmt.Sprintf("twf%d-", s.number) }
func (s *slot) bridge() string            { return s.prefix() + "br" }
func (s *slot) link(node int) string      { return fmt.Sprintf("%sv%d", s.prefix(), node) }
func (s *slot) namespace(node int) string { return fmt.Sprintf("%sn%d", s.prefix(), node) }

// takeSlot takes the first slot that nobody has and whose names and a subnet are free.
func takeSlot() (*slot, netip.Prefix, error) {
	for number := range slots {
		s, err := lockSlot(number)
		if err != nil {
			return nil, netip.Prefix{}, err
		}
		if s == nil {
			continue
		}
		subnet, err := s.prepare()
		if err == nil && subnet.IsValid() {
			return s, subnet, nil
		}
		if err := errors.Join(err, s.release()); err != nil {
			return nil, netip.Prefix{}, err
		}
	}
	return nil, netip.Prefix{}, fmt.Errorf("fault: none of %d slots has free names and a free subnet", slots)
}

// prepare removes what a process that was killed has left, and returns a free subnet, or an invalid one if something of the slot is in use.
func (s *slot) prepare() (netip.Prefix, error) {
	left, foreign, err := s.leftOver()
	if err != nil || foreign {
		return netip.Prefix{}, err
	}
	if left {
		if err := s.clear(); err != nil {
			return netip.Prefix{}, err
		}
	}
	return s.freeSubnet()
}

// leftOver reports whether namespaces or links of the slot exist, left by a process that was killed. Links without namespaces are foreign: they
// belong to a process with another /run, so that the lock does not exclude it. A killed process leaves no links without namespaces, since these
// are made first and removed last.
func (s *slot) leftOver() (left, foreign bool, err error) {
	existing, err := s.namespaces()
	if err != nil {
		return false, false, err
	}
	links, err := s.links()
	return len(existing) > 0, len(existing) == 0 && len(links) > 0, err
}

// namespaces returns the names of the slot's namespaces that exist.
func (s *slot) namespaces() ([]string, error) {
	entries, err := os.ReadDir(namespaceDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), s.prefix()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// links returns the names of the slot's links in the test's namespace that exist.
func (s *slot) links() ([]string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, link := range all {
		if strings.HasPrefix(link.Name, s.prefix()) {
			names = append(names, link.Name)
		}
	}
	return names, nil
}

// clear removes all links and namespaces of the slot. Links are removed one by one: the kernel removes those of a namespace later than the namespace.
func (s *slot) clear() error {
	links, err := s.links()
	errs := []error{err}
	for _, link := range links {
		errs = append(errs, ip("link", "del", link))
	}
	existing, err := s.namespaces()
	errs = append(errs, err)
	for _, namespace := range existing {
		errs = append(errs, ip("netns", "del", namespace))
	}
	return errors.Join(errs...)
}

func (s *slot) release() error { return s.lock.Close() }

// freeSubnet returns a /24 that no route of the host overlaps. It is invalid if there is none.
func (s *slot) freeSubnet() (netip.Prefix, error) {
	text, err := output("ip", "-4", "route", "show", "table", "all")
	if err != nil {
		return netip.Prefix{}, err
	}
	used := destinations(text)
	for _, r := range ranges {
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{r[0], r[1], byte(s.number), 0}), 24)
		if !slices.ContainsFunc(used, subnet.Overlaps) {
			return subnet, nil
		}
	}
	return netip.Prefix{}, nil
}

// destinations returns the destinations of the routes that ip route has printed: the first word of a line that is an address or a network. The default
// route has none.
func destinations(routes string) []netip.Prefix {
	var all []netip.Prefix
	for line := range strings.Lines(routes) {
		words := strings.Fields(line)
		for _, word := range words[:min(2, len(words))] { // such as "10.0.0.0/8 via …" and "broadcast 10.0.0.255 dev …"
			if word == "default" {
				break
			}
			if network, err := netip.ParsePrefix(word); err == nil {
				all = append(all, network)
				break
			}
			if a, err := netip.ParseAddr(word); err == nil {
				all = append(all, netip.PrefixFrom(a, a.BitLen()))
				break
			}
		}
	}
	return all
}
