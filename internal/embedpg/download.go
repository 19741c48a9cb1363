package embedpg

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// mostArchive bounds the size of a download. An archive has 6 to 20 MB.
const mostArchive = 256 << 20

// download stores the archive at path if its checksum is right.
func (f fetcher) download(ctx context.Context, path string) error {
	if f.repository == "" {
		return errors.New("no repository is known")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	transport.ResponseHeaderTimeout = 20 * time.Second
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}

	name := "embedded-postgres-binaries-" + f.platform
	url := fmt.Sprintf("%s/io/zonky/test/postgres/%s/%s/%s-%s.jar", f.repository, name, f.version, name, f.version)
	f.cfg.Progress("fetching PostgreSQL " + f.version + " from " + hostOf(url))

	want := f.sum
	if want == "" {
		var err error
		if want, err = f.publishedSum(ctx, client, url+".sha256"); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	err = f.get(ctx, client, url, io.MultiWriter(file, sum))
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return checkSum(sum, want, name+"-"+f.version+".jar")
}

func checkSum(sum hash.Hash, want, name string) error {
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return fmt.Errorf("%s has SHA-256 %s, expected %s: it was damaged or replaced, and nothing of it was used", name, got, want)
	}
	return nil
}

func (f fetcher) publishedSum(ctx context.Context, client *http.Client, url string) (string, error) {
	var text strings.Builder
	if err := f.get(ctx, client, url, &text); err != nil {
		return "", fmt.Errorf("checksum: %w", err)
	}
	fields := strings.Fields(text.String()) // some tools add the file's name
	if len(fields) == 0 || len(fields[0]) != hex.EncodedLen(sha256.Size) {
		return "", errors.New("checksum: the repository has none")
	}
	return strings.ToLower(fields[0]), nil
}

// get copies a resource to w. It fails if no byte arrives for f.stall: a dead
// connection must not use up the time that a slow one may need.
func (f fetcher) get(ctx context.Context, client *http.Client, url string, w io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(f.stall, func() { cancel(fmt.Errorf("no data received for %v", f.stall)) })
	defer stalled.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", req.URL.Redacted(), resp.Status)
	}
	body := &meter{
		from:  io.LimitReader(resp.Body, mostArchive),
		total: resp.ContentLength,
		shown: time.Now(),
		tell:  f.cfg.Progress,
		alive: func() { stalled.Reset(f.stall) },
	}
	if _, err := io.Copy(w, body); err != nil {
		return fmt.Errorf("GET %s, after %d bytes: %w", req.URL.Redacted(), body.done, errors.Join(err, context.Cause(ctx)))
	}
	return nil
}

// meter reports the progress of a transfer every two seconds, on the goroutine that reads.
type meter struct {
	from        io.Reader
	done, total int64
	shown       time.Time
	tell        func(string)
	alive       func()
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	m.done += int64(n)
	m.alive()
	if time.Since(m.shown) >= 2*time.Second {
		m.shown = time.Now()
		if m.total > 0 {
			m.tell(fmt.Sprintf("fetched %.1f of %.1f MB", float64(m.done)/1e6, float64(m.total)/1e6))
		} else {
			m.tell(fmt.Sprintf("fetched %.1f MB", float64(m.done)/1e6))
		}
	}
	return n, err
}

// hostOf returns the host of a URL, for messages: a mirror's URL may contain a password.
func hostOf(url string) string {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return "the repository"
	}
	return req.URL.Host
}
