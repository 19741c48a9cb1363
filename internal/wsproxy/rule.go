package wsproxy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidewire/tidewire/internal/wire/spec"
)

// Rule says what happens to a message.
type Rule struct {
	// To is where the message goes: "server" or "client".
	To string `json:"to"`
	// Type is the type of the message, such as "publish". Defaults to any type.
	Type string `json:"type,omitempty"`
	// Answers is the type of the request that the message answers, as "ok" or "error". Defaults to any message.
	Answers string `json:"answers,omitempty"`
	// Skip is how many such messages pass first, on all connections together. Defaults to 0.
	Skip int `json:"skip,omitempty"`
	// Times is to how many messages the rule applies; -1 is all. Defaults to 1.
	Times int `json:"times,omitempty"`
	// Do is what happens: CutBefore, CutAfter, Drop, Delay or Stall.
	Do string `json:"do"`
	// DelayMS is how long Delay holds this message and those after it, in milliseconds.
	DelayMS int `json:"delay_ms,omitempty"`
}

// The values of Rule.Do.
const (
	CutBefore = "cut_before" // ends the connection; the message is not forwarded
	CutAfter  = "cut_after"  // forwards the message, and then ends the connection
	Drop      = "drop"       // forwards everything but the message
	Delay     = "delay"
	Stall     = "stall" // forwards nothing more in this direction, from this message on, until Clear
)

const (
	toServer = "server"
	toClient = "client"
)

// validate returns what is wrong with a rule.
func (r *Rule) validate() error {
	switch {
	case r.To != toServer && r.To != toClient:
		return fmt.Errorf("to: %q, want %q or %q", r.To, toServer, toClient)
	case !slices.Contains([]string{CutBefore, CutAfter, Drop, Delay, Stall}, r.Do):
		return fmt.Errorf("do: %q, want cut_before, cut_after, drop, delay or stall", r.Do)
	case r.Skip < 0:
		return fmt.Errorf("skip: %d, want 0 or more", r.Skip)
	case r.Times < -1:
		return fmt.Errorf("times: %d, want 1 or more, or -1 for all", r.Times)
	case r.Do == Delay && r.DelayMS < 1:
		return fmt.Errorf("delay_ms: %d, want 1 or more", r.DelayMS)
	case r.Answers != "" && r.To != toClient:
		return fmt.Errorf("answers: only with to %q", toClient)
	case r.Type != "" && !slices.Contains(kinds(r.To), r.Type):
		return fmt.Errorf("type: %q, want one of %s", r.Type, strings.Join(kinds(r.To), ", "))
	case r.Answers != "" && !slices.Contains(kinds(toServer), r.Answers):
		return fmt.Errorf("answers: %q, want one of %s", r.Answers, strings.Join(kinds(toServer), ", "))
	}
	return nil
}

// kinds returns the types of the messages that go to the server or to clients.
func kinds(to string) (types []string) {
	if to == toServer {
		for _, r := range spec.Requests() {
			types = append(types, r.Type)
		}
		return types
	}
	for _, p := range spec.Pushes() {
		types = append(types, p.Type)
	}
	return append(types, "ok")
}

// active is a rule with what is left of it.
type active struct {
	Rule
	skip, times int
}

// takes reports whether the rule applies to a message, and counts it.
func (a *active) takes(to string, m message) bool {
	if a.times == 0 || a.To != to || a.Type != "" && a.Type != m.kind || a.Answers != "" && a.Answers != m.answers {
		return false
	}
	if a.skip > 0 {
		a.skip--
		return false
	}
	if a.times > 0 {
		a.times--
	}
	return true
}

func (a *active) delay() time.Duration { return time.Duration(a.DelayMS) * time.Millisecond }
