package hostile

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// attack is one kind of attack.
type attack struct {
	name string
	ends ending
	run  func(*attacker)
}

// ending says when an attack ends.
type ending int

const (
	lasting ending = iota // when its time is up
	brief                 // when all its requests are answered: it is not cut short
)

// standing is what the server knows of an attacker in closed mode.
type standing int

const (
	entitled  standing = iota // it has a token of its own user, with rights on evil things alone. In open mode all attackers are entitled
	tokenless                 // it has no token
	mistaken                  // its tokens are all wrong
)

// attacker runs one attack. Its sockets are closed, with a reset, when its time
// is up.
type attacker struct {
	context.Context
	w        *world
	name     string
	addr     string
	random   *rand.Rand // of the goroutine of run
	scale    int        // 0 if each attack runs once; more connections and bytes in a long run
	rounds   atomic.Int64
	standing standing
	user     string
	token    string       // of an entitled attacker in closed mode
	client   *http.Client // of call

	connected func()

	mu     sync.Mutex // guards open, gone and chance
	chance *rand.Rand // of any goroutine
	open   []io.Closer
	gone   bool
	calls  sync.WaitGroup
}

// newAttacker returns an attacker that is entitled.
func (w *world) newAttacker(ctx context.Context, name, addr string, seed uint64, scale int) *attacker {
	a := &attacker{Context: ctx, w: w, name: name, addr: addr, scale: scale, random: rand.New(rand.NewPCG(seed, 15)), chance: rand.New(rand.NewPCG(seed, 16))}
	a.user = fmt.Sprintf("evil-%d", w.users.Add(1))
	a.token = w.gate.evil(a.user)
	a.client = &http.Client{Transport: &http.Transport{DialContext: evilDialer().DialContext, DisableKeepAlives: true}}
	return a
}

// perform runs one attack for a while. It calls connected, unless that is nil, once the attack holds its connections.
func (w *world) perform(ctx context.Context, a attack, addr string, seed uint64, scale int, length time.Duration, connected func()) {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	it := w.newAttacker(ctx, a.name, addr, seed, scale)
	it.connected = connected
	if w.gate != nil {
		it.standing = []standing{entitled, entitled, entitled, tokenless, mistaken}[it.pick(5)]
	}
	release := context.AfterFunc(ctx, it.close)
	a.run(it)
	if a.ends == brief && ctx.Err() != nil && w.giveUp.Err() == nil {
		w.t.Logf("attack %s was cut short after %v: its requests have no answers", a.name, length)
	}
	cancel()
	if release() {
		it.close()
	}
	it.calls.Wait()
}

func (a *attacker) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = true
	for _, c := range a.open {
		c.Close()
	}
}

// own makes c close when the attack is over, and reports whether the attack still runs.
func (a *attacker) own(c io.Closer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		c.Close()
		return false
	}
	if a.open = append(a.open, c); len(a.open) == 8 {
		a.holds()
	}
	return true
}

// pick returns a number below n. Any goroutine may call it.
func (a *attacker) pick(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.chance.IntN(n)
}

// again reports whether to do it once more: until the attack is over, or a few times if each attack runs once.
func (a *attacker) again() bool {
	return a.Err() == nil && (a.scale > 0 || a.rounds.Add(1) <= 20)
}

// many returns the number of connections or messages that is n in a short run.
func (a *attacker) many(n int) int {
	if a.scale == 0 {
		return max(4, n/5)
	}
	return n * a.scale
}

// hold waits until the attack is over.
func (a *attacker) hold() {
	a.holds()
	<-a.Done()
}

func (a *attacker) holds() {
	if a.connected != nil {
		a.connected()
	}
}

// pause waits, and reports whether the attack still runs.
func (a *attacker) pause(d time.Duration) bool {
	a.holds()
	select {
	case <-a.Done():
		return false
	case <-time.After(d): // pace: of an attack
		return true
	}
}

// wrong records an answer that the server must not give to any client.
func (a *attacker) wrong(kind, format string, args ...any) {
	if a.Err() == nil {
		a.w.fault("attack "+a.name, kind, format, args...)
	}
}

// evilDialer dials as attackers do: on Linux from an address of their own, so that limits by address tell them from well-behaved clients. Other
// systems have no such loopback address by themselves.
func evilDialer() *net.Dialer {
	d := &net.Dialer{Timeout: patience}
	if runtime.GOOS == "linux" {
		d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}
	}
	return d
}

// raw returns a TCP connection with a small buffer for what it receives; nil if the server
// rejects it, which it may.
func (a *attacker) raw() *net.TCPConn {
	d := evilDialer()
	d.Control = func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}
	return a.connect(d)
}

func (a *attacker) connect(d *net.Dialer) *net.TCPConn {
	c, err := d.DialContext(a, "tcp", a.addr)
	if err != nil {
		return nil
	}
	tcp := c.(*net.TCPConn)
	tcp.SetLinger(0)
	if !a.own(tcp) {
		return nil
	}
	return tcp
}

// credential is the token that the attacker sends with a request; "" for none.
func (a *attacker) credential() string {
	switch {
	case a.w.gate == nil || a.standing == tokenless:
		return ""
	case a.standing == mistaken:
		return a.wrongToken()
	}
	return a.token
}

// head is the beginning of the headers of a request: the host, and the token if there is one.
func (a *attacker) head() string {
	head := "Host: " + a.addr + "\r\n"
	if token := a.credential(); token != "" {
		head += "Authorization: " + bearer(token) + "\r\n"
	}
	return head
}
