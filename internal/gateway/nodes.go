package gateway

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

// Nodes are the servers of a cluster.
type Nodes interface {
	// Name returns the unique name of this server, without dots.
	Name() string
	// Exist returns which of these servers exist now and may have leases, as far as is known. It costs little, whatever the names are.
	Exist(ctx context.Context, names []string) (exist map[string]bool, err error)
	// Heard returns the names of the other servers that have been heard lately.
	Heard() []string
	// Unheard returns the names of other servers that are not heard, but that were there within the last minute and have not stopped: they may hang.
	Unheard() []string
	// Ask sends a question to another server, which answers it with Server.Answer.
	Ask(ctx context.Context, node string, question []byte) (answer []byte, err error)
	// List returns the servers of the cluster that are known, this one too.
	List(ctx context.Context) ([]NodeInfo, error)
}

// NodeInfo is a server of a cluster. Without a database, only names are known.
type NodeInfo struct {
	Node    string     `json:"node"`
	Address string     `json:"address,omitempty"` // where other servers reach it
	Machine string     `json:"machine,omitempty"`
	Version string     `json:"version,omitempty"`
	Started *time.Time `json:"started,omitempty"`
	SeenMS  *int64     `json:"seen_ms,omitempty"` // how long ago it has written its row
	Heard   bool       `json:"heard"`             // this server hears it now; it always hears itself
}

// listNodes lists the servers of the cluster.
func (c *call) listNodes() {
	nodes := c.api.server.cfg.Nodes
	if nodes == nil {
		c.refuseFor(&problem{code: codeNotServed, text: "this server is in no cluster: start it with --cluster NAME"})
		return
	}
	all, err := nodes.List(c.ctx)
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	c.answer(map[string]any{"node": nodes.Name(), "nodes": all})
}

// nodeSeparator ends the name of the server in the token of a delivery.
const nodeSeparator = "."

// settled is the result of a settlement: how many deliveries are settled, and the tokens of those whose lease is lost and of those that have to be
// tried again.
type settled struct {
	Done   int      `json:"done,omitempty"`
	Lost   []string `json:"lost,omitempty"`
	Failed []string `json:"failed,omitempty"`
}

// settleQuestion asks a server to settle deliveries that it has given out. The server that asks has looked at the rights of the user.
type settleQuestion struct {
	Queue  string        `json:"queue"`
	User   string        `json:"user,omitempty"`
	Kind   string        `json:"kind"`
	Delay  time.Duration `json:"delay,omitempty"`
	Dead   bool          `json:"dead,omitempty"`
	Reason string        `json:"reason,omitempty"`
	Lease  time.Duration `json:"lease,omitempty"`
	Tokens []string      `json:"tokens"`
}

// settleAnywhere settles deliveries that this server or others have given out. Those of a server that does not exist any more are lost: their leases end.
func (a *api) settleAnywhere(ctx context.Context, key pullKey, how settlement, tokens []string) (all settled) {
	here, others := a.ownersOf(tokens)
	var mu sync.Mutex
	var settling sync.WaitGroup
	settle := func(how func() settled) {
		settling.Go(func() {
			s := how()
			mu.Lock()
			defer mu.Unlock()
			all.Done += s.Done
			all.Lost, all.Failed = append(all.Lost, s.Lost...), append(all.Failed, s.Failed...)
		})
	}
	if len(here) > 0 || len(others) == 0 {
		settle(func() settled { return a.settleHere(ctx, key, how, here) })
	}
	if len(others) > 0 {
		exist, err := a.server.cfg.Nodes.Exist(ctx, slices.Collect(maps.Keys(others)))
		if err != nil {
			a.server.sessions.log.warn("deliveries of servers that are not heard are not settled", "queue", key.queue, "type", how.kind, "error", err)
		}
		for node, tokens := range others {
			settle(func() settled {
				switch {
				case exist[node]:
					return a.settleAt(ctx, node, key, how, tokens)
				case err != nil:
					return settled{Failed: tokens}
				}
				return settled{Lost: tokens}
			})
		}
	}
	settling.Wait()
	return all
}

// ownersOf divides tokens among the servers that have given them out. Without a cluster all are of this server.
func (a *api) ownersOf(tokens []string) (here []string, others map[string][]string) {
	if a.server.cfg.Nodes == nil {
		return tokens, nil
	}
	for _, token := range tokens {
		node, _, ok := strings.Cut(token, nodeSeparator)
		if !ok || node == a.consumers.node {
			here = append(here, token)
			continue
		}
		if others == nil {
			others = make(map[string][]string, 1)
		}
		others[node] = append(others[node], token)
	}
	return here, others
}

// settleAt has another server settle its deliveries.
func (a *api) settleAt(ctx context.Context, node string, key pullKey, how settlement, tokens []string) (got settled) {
	question, _ := json.Marshal(settleQuestion{key.queue, key.user, how.kind, how.nack.Delay, how.nack.Dead, how.nack.Reason, how.lease, tokens}) // no value of ours fails
	answer, err := a.server.cfg.Nodes.Ask(ctx, node, question)
	if err == nil {
		err = json.Unmarshal(answer, &got)
	}
	if err != nil {
		a.server.sessions.log.warn("deliveries not settled", "queue", key.queue, "type", how.kind, "server", node, "error", err)
		return settled{Failed: tokens}
	}
	return got
}

// Answer answers the question of another server of the cluster.
func (s *Server) Answer(ctx context.Context, question []byte) []byte {
	if answer, ok := s.answerOfRooms(question); ok {
		return answer
	}
	if len(question) > 1 && question[0] == questionConsumers && s.api != nil && s.sessions != nil {
		return s.answerOfConsumers(string(question[1:]))
	}
	var q settleQuestion
	if s.api == nil || s.cfg.Engine.Queues == nil || json.Unmarshal(question, &q) != nil {
		return nil // which the other server can't decode: it tells its client to try again
	}
	how := settlement{kind: q.Kind, nack: engine.Nack{Delay: q.Delay, Dead: q.Dead, Reason: q.Reason}, lease: q.Lease}
	answer, _ := json.Marshal(s.api.settleHere(ctx, pullKey{q.Queue, q.User}, how, q.Tokens)) // no value of ours fails
	return answer
}
