package gateway

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// maxListedConsumers is how many consumers an answer has at most.
const maxListedConsumers = 500

// consuming are the consumers of all connections, by queue: so that a list of them does not look at each connection.
type consuming struct {
	mu sync.Mutex
	of map[string]map[*consumer]struct{}
}

func (c *consuming) add(one *consumer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = make(map[string]map[*consumer]struct{})
	}
	if c.of[one.queue] == nil {
		c.of[one.queue] = make(map[*consumer]struct{})
	}
	c.of[one.queue][one] = struct{}{}
}

func (c *consuming) remove(one *consumer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.of[one.queue], one); len(c.of[one.queue]) == 0 {
		delete(c.of, one.queue)
	}
}

func (c *consuming) all(queue string) []*consumer {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*consumer, 0, len(c.of[queue]))
	for one := range c.of[queue] {
		all = append(all, one)
	}
	return all
}

// consumerList is who consumes a queue.
type consumerList struct {
	Node      string          `json:"node,omitempty"` // that answers
	Queue     string          `json:"queue"`
	Consumers []shownConsumer `json:"consumers"`
	Total     int             `json:"total"`
	// Silent are the servers of the cluster that did not answer in time.
	Silent []string `json:"silent,omitempty"`
}

// shownConsumer is a consumer of a connection, or what all HTTP clients of a user share.
type shownConsumer struct {
	Node       string    `json:"node,omitempty"`
	Connection string    `json:"connection,omitempty"` // "" for HTTP clients
	User       string    `json:"user,omitempty"`
	Client     string    `json:"client,omitempty"`
	Began      time.Time `json:"began"`
	Credits    int64     `json:"credits"`
	Unsettled  int       `json:"unsettled"`
}

// oldestFirst is the order of a list: rows keep their places while the numbers change.
func oldestFirst(a, b shownConsumer) int {
	return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Connection, b.Connection), cmp.Compare(a.User, b.User))
}

// cut sorts a list, and leaves its first consumers.
func (l *consumerList) cut() {
	slices.SortFunc(l.Consumers, oldestFirst)
	l.Consumers = l.Consumers[:min(len(l.Consumers), maxListedConsumers)]
}

// consumersHere returns who consumes a queue on this server.
func (s *Server) consumersHere(queue string) consumerList {
	now := time.Now()
	list := consumerList{Queue: queue, Consumers: s.api.consumers.shown(queue, now)}
	for _, one := range s.sessions.consuming.all(queue) {
		list.Consumers = append(list.Consumers, one.shown(now))
	}
	list.Total = len(list.Consumers)
	list.cut()
	if nodes := s.cfg.Nodes; nodes != nil {
		list.Node = nodes.Name()
		for i := range list.Consumers {
			list.Consumers[i].Node = list.Node
		}
	}
	return list
}

// shown describes the consumer.
func (c *consumer) shown(now time.Time) shownConsumer {
	conn := c.session.conn
	is := shownConsumer{Connection: conn.name(), Client: conn.client.Value(), Began: c.began.UTC()}
	if caller := conn.identity.caller.Load(); caller != nil {
		is.User = caller.User
	}
	is.Unsettled, _ = c.leases.count(now)
	c.mu.Lock()
	is.Credits = c.credits
	c.mu.Unlock()
	return is
}

// shown describes the pull consumers of a queue that are open.
func (ds *pullConsumers) shown(queue string, now time.Time) (all []shownConsumer) {
	ds.mu.Lock()
	var some []*pullConsumer
	for key, d := range ds.open {
		if key.queue == queue {
			some = append(some, d)
		}
	}
	ds.mu.Unlock()
	for _, d := range some {
		if need, open := d.demand.now(); open {
			unsettled, _ := d.leases.count(now)
			all = append(all, shownConsumer{User: d.key.user, Began: d.began.UTC(), Credits: int64(need), Unsettled: unsettled})
		}
	}
	return all
}

// listConsumers answers with who consumes a queue, on all servers. A program with the Go library that consumes in the database itself is none of them.
func (c *call) listConsumers() {
	admin := c.api.server.cfg.Engine.Queues
	if !c.served(admin != nil) {
		return
	}
	if _, err := query(c.ctx, c, func() (struct{}, error) { // whether there is such a queue
		_, err := admin.Options(c.ctx, c.queue())
		return struct{}{}, err
	}); err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	all := c.api.server.consumersHere(c.queue())
	all.Silent = askAll(c, append([]byte{questionConsumers}, c.queue()...), func(there consumerList) {
		all.Consumers = append(all.Consumers, there.Consumers...)
		all.Total += there.Total
	})
	all.cut()
	if all.Consumers == nil {
		all.Consumers = []shownConsumer{} // never null in JSON
	}
	c.answer(all)
}

// answerOfConsumers answers the question of another server about the consumers of a queue.
func (s *Server) answerOfConsumers(queue string) []byte {
	answer, _ := json.Marshal(s.consumersHere(queue)) // no value of ours fails
	return answer
}
