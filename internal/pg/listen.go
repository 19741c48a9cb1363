package pg

import (
	"context"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The channels of Tidewire's notifications.
const (
	StreamChannel = `tidewire_stream` // streams have grown
	EventChannel  = `tidewire_events` // event stores have
	AccessChannel = `tidewire_access` // keys, revocations or rights have changed

	ScheduleChannel = `tidewire_schedules` // schedules have changed
)

// Listen calls heard with the payload of every notification on the channel
// until ctx ends. It reconnects after a lost connection, with Backoff. It calls
// listening each time a connection has executed LISTEN: earlier notifications may be
// lost, so the caller has to poll then. Both functions must be brief, because all
// listeners of the pool share one goroutine and one connection.
//
// The pool makes the connection with its own hooks, but it is taken out of the
// pool: it does not count towards the pool's size.
func Listen(ctx context.Context, pool *pgxpool.Pool, channel string, log *slog.Logger, listening func(), heard func(payload string)) {
	u := &listenUser{channel: channel, log: log, listening: listening, heard: heard}
	l := listeners.Join(pool, func() *listener { return startListener(pool) })
	l.add(u)
	<-ctx.Done()
	l.remove(u)
	if listeners.Leave(pool) {
		l.stop()
		<-l.done
	}
}

// listener holds the connection that listens for all users of one pool. It exists while
// there are users.
type listener struct {
	pool *pgxpool.Pool
	stop context.CancelFunc
	done chan struct{} // closed when the connection is

	mu    sync.Mutex
	users map[*listenUser]struct{}
	live  bool // the connection listens
}

type listenUser struct {
	channel   string
	log       *slog.Logger
	listening func()
	heard     func(payload string)
}

var listeners PerPool[*listener]

func startListener(pool *pgxpool.Pool) *listener {
	l := &listener{pool: pool, done: make(chan struct{}), users: make(map[*listenUser]struct{})}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	go l.run(ctx)
	return l
}

func (l *listener) add(u *listenUser) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users[u] = struct{}{}
	if l.live {
		u.listening()
	}
}

// remove removes a user. After it returns, the user's functions are not called any more.
func (l *listener) remove(u *listenUser) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.users, u)
}

func (l *listener) run(ctx context.Context) {
	defer close(l.done)
	for failed := 0; ; failed++ {
		err := l.once(ctx, func() { failed = 0 })
		if ctx.Err() != nil {
			return
		}
		l.warn(err)
		if Backoff(ctx, failed) != nil {
			return
		}
	}
}

// once listens until the connection or ctx ends.
func (l *listener) once(ctx context.Context, listening func()) error {
	acquired, err := l.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := acquired.Hijack()
	defer conn.Close(context.Background())
	defer l.setLive(false)
	for _, channel := range []string{StreamChannel, EventChannel, AccessChannel, ScheduleChannel} {
		if _, err := conn.Exec(ctx, `LISTEN `+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
	}
	listening()
	l.setLive(true)
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		l.tell(n.Channel, n.Payload)
	}
}

func (l *listener) setLive(live bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live = live
	for u := range l.users {
		if live {
			u.listening()
		}
	}
}

func (l *listener) tell(channel, payload string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for u := range l.users {
		if u.channel == channel {
			u.heard(payload)
		}
	}
}

// warn logs the error with the log of one of the users.
func (l *listener) warn(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for u := range l.users {
		u.log.Warn("listening for PostgreSQL notifications failed, retrying", "error", err)
		return
	}
}
