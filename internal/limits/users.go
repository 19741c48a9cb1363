package limits

import (
	"time"

	"golang.org/x/sync/semaphore"
)

// maxIdle is how many users without connections are remembered. One takes about 400 bytes.
const maxIdle = 50_000

// user is what is counted of one user. It stays for a while after the last connection: a user that connects again finds its buckets as they are.
type user struct {
	counts
	bucket  *bucket             // nil without rates
	free    *bucket             // of freeRate; nil without rates
	queries *semaphore.Weighted // nil without a limit
	queued  bool                // in Registry.idle
}

// idleUser is a user that may be forgotten at that time, if it has been idle meanwhile.
type idleUser struct {
	name string
	at   time.Time
}

// userCounts returns the counts of a user, which may be unknown. r.mu is held.
func (r *Registry) userCounts(name string) counts {
	if u := r.users[name]; u != nil {
		return u.counts
	}
	return counts{}
}

// user returns a user, new if it is unknown. r.mu is held.
func (r *Registry) user(name string) *user {
	u := r.users[name]
	if u == nil {
		u = &user{bucket: newBucket(UserShare*r.cfg.RequestRate, UserShare*r.cfg.ByteRate, r.cfg.MaxMessage)}
		if u.bucket != nil {
			u.free = newBucket(UserShare*freeRate, UserShare*r.cfg.ByteRate, r.cfg.MaxMessage)
		}
		if r.cfg.UserQueries > 0 {
			u.queries = semaphore.NewWeighted(int64(r.cfg.UserQueries))
		}
		r.watch(name, u)
		r.users[name] = u
	}
	return u
}

// full returns how long the buckets of a user take to be full again.
func (u *user) full(now time.Time) time.Duration { return max(u.bucket.full(now), u.free.full(now)) }

// settle plans that a user without connections and requests is forgotten: at once, or when its buckets must be full again, as those of a new user
// are. r.mu is held.
func (r *Registry) settle(name string, u *user) {
	if u.counts != (counts{}) {
		return
	}
	if u.bucket == nil {
		delete(r.users, name)
		return
	}
	now := r.now()
	if !u.queued {
		u.queued = true
		r.idle = append(r.idle, idleUser{name, now.Add(u.full(now))})
	}
	r.forget(now)
}

// forget removes users that have been idle long enough, and the oldest if there are too many. r.mu is held.
func (r *Registry) forget(now time.Time) {
	for len(r.idle) > 0 && (len(r.idle) > maxIdle || !now.Before(r.idle[0].at)) {
		first := r.idle[0]
		r.idle[0] = idleUser{}
		r.idle = r.idle[1:]
		u := r.users[first.name]
		switch full := now.Add(u.full(now)); {
		case u.counts != (counts{}): // it is back
			u.queued = false
		case now.Before(full) && len(r.idle) < maxIdle:
			r.idle = append(r.idle, idleUser{first.name, full})
		default:
			delete(r.users, first.name)
		}
	}
}
