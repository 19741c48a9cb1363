package conformance_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/internal/wsproxy"
)

// A step is a command (README.md), with what its answer has to have, or one of the acts below:
//
//	{"do":…, "ok":{…}} or {"do":…, "error":{"code":…}}; without both it has to succeed
//	{"do":…, "value":"BIG"}                a text of 2 MiB
//	{"do":…, "begin":"name"}               goes on without the answer, which {"await":"name","ok":…} waits for
//	{"see":{"on":…,"event":…,…}}           waits for an event; those of its kind before it are dropped
//	{"sees":[{"on":…,"event":…,…},…]}      waits for events, in any order
//	{"messages":{"on":…,"values":[…]}}     the next messages of a subscription have these values, in this order
//	{"messages":{"on":…,"count":N,"from":M}}   the same with the numbers from M on
//	{"none":{"on":…,"event":…,"ms":N}}     no such event comes for N ms
//	{"fault":{…}}                          a rule of the proxy
//	{"proxy":"cut"|"refuse"|"heal"|"used"}     "used" waits until each rule has met its messages
//	{"server":"kill"|"stop"|"start"|"other"}   "other" sends further connections to the other server of two
//	{"database":"kill"|"start"}            the PostgreSQL of a server that has its own
//	{"runner":"freeze"|"thaw"}             SIGSTOP and SIGCONT, like a laptop that sleeps
//	{"publish":{"stream":…,"values":[…]}}  another program publishes; or "count" and "from"
//	{"http":{"method":…,"path":…,"body":…,"ok":{…}}}   another program
//	{"stored":{"stream":…,"values":[…]}}   all that a stream has, in this order
//	{"drop":{"stream":…}}                  retention drops all that a stream has
//	{"large":{"stream":…}}                 a program with the Go packages stores a message of 2 MiB, which the server does not read
//	{"sleep_ms":N}

// acts are the steps that are no commands.
var acts = map[string]func(*world, any) error{
	"await":    nil, // see step
	"see":      func(w *world, v any) error { return w.runner.see(w.named(v.(fields)), true) },
	"sees":     (*world).sees,
	"messages": (*world).messages,
	"none":     (*world).none,
	"fault":    (*world).fault,
	"proxy":    breaking("proxy"),
	"server":   breaking("server"),
	"database": breaking("database"),
	"runner":   breaking("runner"),
	"publish":  (*world).publish,
	"http":     (*world).ask,
	"stored":   (*world).stored,
	"drop":     (*world).drop,
	"large":    (*world).large,
	"sleep_ms": (*world).pause,
}

// step does one step.
func (w *world) step(step fields) error {
	if name, ok := step["await"].(string); ok {
		return w.answered(w.begun[name], step)
	}
	if _, ok := step["do"]; ok {
		return w.command(step)
	}
	for name, value := range step {
		act := acts[name]
		if act == nil {
			return fmt.Errorf("there is no act %q", name)
		}
		if err := act(w, value); err != nil {
			return err
		}
	}
	return nil
}

// named is a copy in which clients and iterations have the names that the runner knows.
func (w *world) named(f fields) fields {
	f = maps.Clone(f)
	for _, field := range []string{"client", "as", "on"} {
		if name, ok := f[field].(string); ok {
			f[field] = w.prefix + name
		}
	}
	return f
}

// pause is the time that a scenario lets pass, which is part of it.
func (w *world) pause(ms any) error {
	time.Sleep(time.Duration(ms.(float64)) * time.Millisecond) // pace: of the scenario
	return nil
}

// command sends a command.
func (w *world) command(step fields) error {
	command := w.named(step)
	for _, name := range []string{"ok", "error", "begin"} {
		delete(command, name)
	}
	if command["value"] == "BIG" {
		command["value"] = strings.Repeat("x", 2<<20)
	}
	if step["do"] == "open" {
		command["url"] = "ws://" + w.proxy.Addr() + "/ws"
		w.clients = append(w.clients, command["client"])
	}
	id := w.runner.send(command)
	w.ids[id] = true
	if name, ok := step["begin"].(string); ok {
		w.begun[name] = id
		return nil
	}
	return w.answered(id, step)
}

// answered waits for an answer, and compares it with what the step wants.
func (w *world) answered(id int, step fields) error {
	got, err := w.runner.answer(id)
	if err != nil {
		return err
	}
	if want, ok := step["error"]; ok {
		if !matches(want, got["error"]) {
			return fmt.Errorf("got %v", got)
		}
		return nil
	}
	if got["error"] != nil {
		return fmt.Errorf("got %v", got)
	}
	if want, ok := step["ok"]; ok && !matches(want, got["ok"]) {
		return fmt.Errorf("got %v", got)
	}
	return nil
}

// values returns the values that a step has: "values", or the "count" numbers from "from" (default 1) on.
func values(v fields) (all []any) {
	if given, ok := v["values"].([]any); ok {
		return given
	}
	from, ok := v["from"].(float64)
	if !ok {
		from = 1
	}
	count, _ := v["count"].(float64)
	for i := range int(count) {
		all = append(all, from+float64(i))
	}
	return all
}

func (w *world) sees(v any) error {
	for _, want := range v.([]any) {
		if err := w.runner.see(w.named(want.(fields)), false); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) messages(v any) error {
	want := values(v.(fields))
	got, err := w.runner.count(w.prefix+v.(fields)["on"].(string), "message", len(want))
	if err != nil {
		return fmt.Errorf("%w; %d of %d came, the last %v", err, len(got), len(want), last(got))
	}
	for i, e := range got {
		if !matches(want[i], e["value"]) {
			return fmt.Errorf("message %d is %v, want %v", i+1, e["value"], want[i])
		}
	}
	return nil
}

func last(all []fields) any {
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

func (w *world) none(v any) error {
	f := v.(fields)
	w.pause(f["ms"])
	if got := w.runner.take(w.prefix+f["on"].(string), f["event"].(string)); len(got) > 0 {
		return fmt.Errorf("came: %v", got)
	}
	return nil
}

func (w *world) fault(v any) error {
	text, _ := json.Marshal(v)
	var rule wsproxy.Rule
	if err := json.Unmarshal(text, &rule); err != nil {
		return err
	}
	return w.proxy.Add(rule)
}

// breaks are the acts that break something, or mend it.
var breaks = map[string]func(*world) error{
	"proxy cut": func(w *world) error {
		if w.proxy.Cut() == 0 {
			return errors.New("there was no connection to cut")
		}
		return nil
	},
	"proxy refuse": func(w *world) error { w.proxy.Refuse(true); return nil },
	"proxy heal":   func(w *world) error { w.proxy.Clear(); return nil },
	"proxy used": func(w *world) error {
		testkit.Eventually(w.t, "each fault has met its messages", func() bool { return w.proxy.State().Waiting == 0 })
		return nil
	},
	"server kill":    func(w *world) error { w.server().Kill(); return nil },
	"server stop":    func(w *world) error { w.server().Stop(w.t); return nil },
	"server start":   func(w *world) error { w.server().start(); return nil },
	"server other":   func(w *world) error { slices.Reverse(w.servers); return nil },
	"database kill":  func(w *world) error { return w.db.Kill(w.t.Context()) },
	"database start": func(w *world) error { return w.db.Restart(w.t.Context()) },
	"runner freeze":  func(w *world) error { return w.runner.cmd.Process.Signal(syscall.SIGSTOP) },
	"runner thaw":    func(w *world) error { return w.runner.cmd.Process.Signal(syscall.SIGCONT) },
}

// breaking returns the act on something.
func breaking(on string) func(*world, any) error {
	return func(w *world, v any) error {
		act := breaks[on+" "+fmt.Sprint(v)]
		if act == nil || on == "server" && !w.own || on == "database" && w.db == nil {
			return fmt.Errorf("there is no act %q, or what it breaks is shared", v)
		}
		err := act(w)
		w.proxy.SetTarget(w.server().Addr)
		return err
	}
}

// publish publishes as another program, 1,000 messages at a time.
func (w *world) publish(v any) error {
	f := v.(fields)
	var messages []any
	flush := func() {
		if len(messages) > 0 {
			w.server().want(w.t, "POST", "/v1/streams/"+f["stream"].(string)+"/messages", fields{"messages": messages})
		}
		messages = nil
	}
	for _, value := range values(f) {
		text, _ := json.Marshal(value)
		if raw, ok := f["raw"].(string); ok {
			text = []byte(raw)
		}
		message := fields{"payload": string(text)}
		if key, ok := f["key"]; ok {
			message["key"] = key
		}
		if messages = append(messages, message); len(messages) == 1000 {
			flush()
		}
	}
	flush()
	return nil
}

func (w *world) ask(v any) error {
	f := v.(fields)
	method, _ := f["method"].(string)
	got := w.server().want(w.t, method, f["path"].(string), f["body"])
	if want, ok := f["ok"]; ok && !matches(want, got) {
		return fmt.Errorf("got %v", got)
	}
	return nil
}

func (w *world) stored(v any) error {
	f := v.(fields)
	got, _ := w.server().stored(w.t, f["stream"].(string))
	if want := values(f); !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
		return fmt.Errorf("stored are %d: %.300v", len(got), got)
	}
	return nil
}
