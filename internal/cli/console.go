package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/access"
	"github.com/tidewire/tidewire/internal/auth"
)

const (
	// onceLife is how long a one-time key waits for a browser.
	onceLife = time.Minute
	// keyPatience is how long a server may take to learn of a new key: it reads keys every 30 s if notifications do not reach it.
	keyPatience = 40 * time.Second
)

// consoleRights are the rights of an operator: everything that the console can do, except to start benchmarks.
var consoleRights = []string{
	"read,publish,commit,admin stream:**", "enqueue,consume,inspect,admin queue:**", "query,append,admin events:**",
	"join,chat,history,presence,admin room:**", "notify user:**", "metrics,connections,keys,schedules server:*",
}

// consoleCmd is the command that opens the console in a browser.
type consoleCmd struct {
	URL   string   `name:"url" default:"http://localhost:8080" help:"Address of the server."`
	Allow []string `sep:"none" placeholder:"'RULE'" help:"Right in the console, in closed mode, for example 'read stream:**'. May be repeated. Default: all except bench and profile."`
	Print bool     `help:"Print the address, and open no browser."`
	databaseFlags
}

// Run is called by kong.
func (c *consoleCmd) Run(p *process) error {
	at, err := url.Parse(c.URL)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
		return exit(ExitUsage, "--url %s: want the address of a server, such as http://localhost:8080", c.URL)
	}
	at = &url.URL{Scheme: at.Scheme, Host: at.Host, Path: "/console/"}
	closed, err := asksForTokens(p.ctx, at, "")
	if err != nil {
		return err
	}
	if !closed {
		return c.show(p, at)
	}
	if at.Scheme == "http" && !auth.IsLoopback(at.Hostname()) {
		return exit(ExitUsage, "--url %s: others could read the key on its way to another machine: give an address that begins with https://", c.URL)
	}
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		key, err := c.oneTimeKey(p, pool, at)
		if err != nil {
			return err
		}
		at.Fragment = "key=" + key // a browser sends a fragment to nobody
		fmt.Fprintln(p.Err, "The address counts once, within a minute.")
		return c.show(p, at)
	})
}

// oneTimeKey makes a key that can be exchanged once, and waits until the server takes it.
func (c *consoleCmd) oneTimeKey(p *process, pool *pgxpool.Pool, at *url.URL) (string, error) {
	allow := c.Allow
	if len(allow) == 0 {
		allow = consoleRights
	}
	id, key, err := access.CreateKey(p.ctx, pool, p.log, operator(), "console", append([]string{"console server:*"}, allow...), onceLife)
	if err != nil {
		return "", explainKeys(err)
	}
	for end := time.Now().Add(keyPatience); ; time.Sleep(100 * time.Millisecond) {
		refused, err := asksForTokens(p.ctx, at, key)
		if err == nil && !refused {
			return key, nil
		}
		if err != nil || time.Now().After(end) {
			return "", errors.Join(err, access.RevokeKey(context.WithoutCancel(p.ctx), pool, p.log, operator(), id), exit(ExitFailure, "%s does not take the key: "+
				"does the server run with --auth-api-keys, and on the database of this command (--database-url)?", at))
		}
	}
}

// asksForTokens reports whether the server refuses a request with a key, or with none.
func asksForTokens(ctx context.Context, at *url.URL, key string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	to := at.JoinPath("../v1/rights")
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), strings.NewReader(`{"rights":[{"verb":"console","kind":"server"}]}`))
	if err != nil {
		return false, err
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return false, exit(ExitFailure, "no server answers at %s: start it with tidewire serve, or give its address with --url: %w", at.Host, err)
	}
	defer resp.Body.Close()
	var answer struct{ Closed *bool }
	switch body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10)); {
	case resp.StatusCode == http.StatusUnauthorized:
		return true, nil
	case err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(body, &answer) != nil || answer.Closed == nil:
		return false, exit(ExitFailure, "%s answers with status %d, and not as a Tidewire server of this version does", to, resp.StatusCode)
	}
	return false, nil
}

// show opens an address in the browser, or prints it if there is none.
func (c *consoleCmd) show(p *process, at *url.URL) error {
	if c.Print {
		_, err := fmt.Fprintln(p.Out, at)
		return err
	}
	if err := browse(at.String()); err != nil {
		fmt.Fprintf(p.Err, "No browser was opened (%s). Open this address:\n", strings.TrimSpace(err.Error()))
		_, err := fmt.Fprintln(p.Out, at)
		return err
	}
	fmt.Fprintf(p.Err, "%s is open in your browser.\n", (&url.URL{Scheme: at.Scheme, Host: at.Host, Path: at.Path}).String())
	return nil
}

// browse opens an address in the browser. A program that is still running after a moment is the browser: it goes on after this command.
func browse(address string) error {
	name, args := opener(runtime.GOOS)
	cmd := exec.Command(name, append(args, address)...)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(3 * time.Second):
		return nil
	}
}

// opener is the program of a system that opens an address in the browser, and its first arguments.
func opener(system string) (name string, args []string) {
	switch system {
	case "darwin":
		return "open", nil
	case "windows":
		return "rundll32", []string{"url.dll,FileProtocolHandler"}
	}
	return "xdg-open", nil
}
