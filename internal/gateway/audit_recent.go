package gateway

import (
	"container/list"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
)

// maxRecent is how many denials, and how many acts, are kept in memory. The audit log has all: this is for a look at the last ones.
const maxRecent = 1000

// maxCause is how much of the cause of a denial is kept, in bytes.
const maxCause = 200

// recentDenials has the last denials. Equal ones are counted together. Safe for concurrent use.
type recentDenials struct {
	mu   sync.Mutex
	all  map[denialOf]*list.Element
	last list.List // of *denial, the newest first
}

// denialOf is what equal denials have in common.
type denialOf struct {
	Code    code      `json:"code"`
	User    string    `json:"user"`
	Role    string    `json:"role,omitempty"`
	Address string    `json:"address"`
	Verb    auth.Verb `json:"verb,omitempty"`
	Kind    auth.Kind `json:"kind,omitempty"`
	Name    string    `json:"name,omitempty"`
}

type denial struct {
	denialOf
	Reason    string    `json:"reason,omitempty"`     // of the last one, only for operators
	RequestID string    `json:"request_id,omitempty"` // of the last one
	Count     int       `json:"count"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
}

// add counts a denial.
func (r *recentDenials) add(what denialOf, request string, cause error, now time.Time) {
	reason := ""
	if cause != nil {
		reason = strings.ToValidUTF8(strings.Clone(cause.Error()[:min(len(cause.Error()), maxCause)]), "")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.all[what]; at != nil {
		d := at.Value.(*denial)
		d.Count++
		d.Last, d.Reason, d.RequestID = now, reason, request
		r.last.MoveToFront(at)
		return
	}
	if r.last.Len() >= maxRecent {
		oldest := r.last.Back()
		delete(r.all, oldest.Value.(*denial).denialOf)
		r.last.Remove(oldest)
	}
	if r.all == nil {
		r.all = make(map[denialOf]*list.Element)
	}
	what.Name = strings.Clone(what.Name) // it may be a part of a large message
	what.User = strings.Clone(what.User)
	r.all[what] = r.last.PushFront(&denial{what, reason, request, 1, now, now})
}

func (r *recentDenials) list() []denial {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]denial, 0, r.last.Len())
	for at := r.last.Front(); at != nil; at = at.Next() {
		all = append(all, *at.Value.(*denial))
	}
	return all
}

// recentActs has the last administrative acts. Safe for concurrent use.
type recentActs struct {
	mu  sync.Mutex
	all []recentAct // the oldest first
}

type recentAct struct {
	Time      time.Time `json:"time"`
	User      string    `json:"user"`
	Role      string    `json:"role,omitempty"`
	Address   string    `json:"address"`
	Act       string    `json:"act"`
	Target    string    `json:"target"`
	RequestID string    `json:"request_id,omitempty"`
}

func (r *recentActs) add(act recentAct) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) >= 2*maxRecent {
		r.all = append(r.all[:0], r.all[len(r.all)-maxRecent:]...)
	}
	r.all = append(r.all, act)
}

// list returns the last acts, the newest first.
func (r *recentActs) list() []recentAct {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.all[max(0, len(r.all)-maxRecent):])
	if all == nil {
		all = []recentAct{}
	}
	slices.Reverse(all)
	return all
}

// recent returns the last denials and acts, the newest first.
func (a *audit) recent() ([]denial, []recentAct) { return a.lastDenials.list(), a.lastActs.list() }
