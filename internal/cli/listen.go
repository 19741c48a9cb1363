package cli

import (
	"errors"
	"net"
	"strconv"
	"syscall"
)

// listen opens the port on every address of the host: localhost stands for both
// loopback addresses, if the machine has them. Port 0 chooses a free port, the
// same for all addresses. An error names the settings to change.
func listen(host string, port int, names settingNames) ([]net.Listener, error) {
	addresses := []string{host}
	if host == "localhost" {
		addresses = []string{"127.0.0.1", "::1"}
	}
	var open []net.Listener
	for _, address := range addresses {
		l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		if err != nil {
			if len(open) > 0 && noSuchAddress(err) {
				continue // a machine without IPv6
			}
			for _, l := range open {
				l.Close()
			}
			return nil, names.explain(err, address, port)
		}
		open = append(open, l)
		port = l.Addr().(*net.TCPAddr).Port
	}
	return open, nil
}

// listenAdmin opens the listeners of --admin-listen, or none.
func (c *serveCmd) listenAdmin(p *process) ([]net.Listener, error) {
	if c.AdminListen == "" {
		return nil, nil
	}
	host, text, err := net.SplitHostPort(c.AdminListen)
	if err != nil {
		host, text = "", c.AdminListen
	}
	port, err := strconv.Atoi(text)
	if err != nil || port < 0 || port > 65535 {
		return nil, exit(ExitUsage, "--admin-listen is %q: want PORT or HOST:PORT, such as 8081 or 127.0.0.1:8081", c.AdminListen)
	}
	if host == "" {
		host = "localhost"
	}
	open, err := listen(host, port, settingNames{"--admin-listen", "--admin-listen"})
	if err == nil && !onLoopback(open) {
		p.log.Warn("/metrics needs no token on this address: let only your own machines reach it", "admin-listen", c.AdminListen)
	}
	return open, err
}

func noSuchAddress(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}

// settingNames are the settings of an address.
type settingNames struct{ host, port string }

func (n settingNames) explain(err error, address string, port int) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return exit(ExitListen, "port %d is in use; stop what listens there or choose another with %s", port, n.port)
	case errors.Is(err, syscall.EACCES):
		return exit(ExitListen, "not allowed to listen on port %d; choose one above 1023 with %s", port, n.port)
	default:
		return exit(ExitListen, "cannot listen on %s: %w; choose an address of this machine with %s", net.JoinHostPort(address, strconv.Itoa(port)), err, n.host)
	}
}
