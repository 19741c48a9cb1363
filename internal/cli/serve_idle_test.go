package cli_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// TestServe_IdleConnections: connections that stay open after an HTTP request are
// closed in time, however many there are, and do not disturb others.
func TestServe_IdleConnections(t *testing.T) {
	t.Parallel()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	connections := int(min(5000, limit.Cur/4)) // other tests of this process have files, too
	p := serve(t, "--only", "echo", "--idle-timeout", "1s")
	var opening, all errgroup.Group
	opening.SetLimit(64)
	for range connections {
		opening.Go(func() error {
			conn, err := requestAndKeep(p.addr)
			if err == nil {
				all.Go(func() error { return awaitEnd(conn) })
			}
			return err
		})
	}
	if err := opening.Wait(); err != nil {
		t.Error(err)
	}
	if status, text := request(t, "GET", p.addr, "/healthz", ""); status != http.StatusOK {
		t.Errorf("beside %d connections: %d %s", connections, status, text)
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
	if code := p.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// requestAndKeep makes one request and leaves its connection open.
func requestAndKeep(addr string) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Minute)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", addr); err != nil {
		conn.Close()
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil && (resp.StatusCode != http.StatusOK || resp.Close) {
		err = fmt.Errorf("%s, to be closed: %v", resp.Status, resp.Close)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// awaitEnd waits until the server closes the connection.
func awaitEnd(conn net.Conn) error {
	defer conn.Close()
	if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("an idle connection is not closed: %w", err)
	}
	return nil
}
