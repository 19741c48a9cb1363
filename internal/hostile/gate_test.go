package hostile

import (
	"crypto/rand"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth/authtest"
)

// rules of a server in closed mode. Clients are named "ROLE … OBJECT", such as "consumer 1 of good-jobs": the first word is the role of their
// tokens, and the last the claim "of". So each has only the rights that it needs. Attackers have rights on what is called evil, and read what
// is big. Some things called shared are theirs and those of well-behaved clients.
var rules = []string{
	"publisher: publish stream:{claim.of}", "subscriber: read stream:{claim.of}", "HTTP-reader: read stream:{claim.of}",
	"producer: enqueue queue:{claim.of}", "consumer: consume queue:{claim.of}", "HTTP-consumer: consume queue:{claim.of}", "operator: inspect queue:{claim.of}",
	"talker: join,chat room:{claim.of}", "listener: join,history room:{claim.of}",
	"appender: append,query events:default#good", "watcher: query events:default#good",
	"monitor: metrics,profile server:*",
	"preparer: admin,publish stream:**", "preparer: admin,enqueue queue:**", "preparer: join,chat room:" + bigRoom, "preparer: append events:default#evil",

	"evil: join,chat,history,presence room:evil*", "evil: join,chat,history,presence room:stored-evil*", "evil: join,chat,history room:" + bigRoom,
	"evil: read,publish,commit,admin stream:evil**", "evil: publish stream:nowhere*", "evil: read stream:" + bigStream,
	"evil: enqueue,consume,inspect,admin queue:evil**", "evil: query,append events:default#evil", "evil: query events:default#" + bigTag,
	"evil: write ingest:*", "evil: metrics,bench server:*", "evil: publish stream:" + sharedStream, "evil: enqueue,consume queue:" + sharedQueue,
}

// gate signs the tokens that a server in closed mode accepts. A nil gate is that of a server in open mode: its tokens are empty.
type gate struct {
	t      *testing.T
	secret []byte
	file   string // with the secret
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{t: t, secret: []byte(rand.Text() + rand.Text()), file: filepath.Join(t.TempDir(), "secret")}
	if err := os.WriteFile(g.file, g.secret, 0o600); err != nil {
		t.Fatal(err)
	}
	return g
}

// flags are those of the server.
func (g *gate) flags() []string {
	if g == nil {
		return nil
	}
	flags := []string{"--auth-secret-file", g.file}
	for _, r := range rules {
		flags = append(flags, "--rule", r)
	}
	return flags
}

// shortLife and longLife are lives of tokens. A short one ends in a longer run unless it is renewed.
const shortLife, longLife = 150 * time.Second, 24 * time.Hour

// token returns a new token of the client, whose name says what it may do.
func (g *gate) token(who string, life time.Duration) string {
	if g == nil {
		return ""
	}
	words := strings.Fields(who)
	return authtest.Token(g.t, g.secret, who, life, map[string]any{"role": words[0], "of": words[len(words)-1]})
}

// evil returns a token of an attacker's user.
func (g *gate) evil(user string) string {
	if g == nil {
		return ""
	}
	return authtest.Token(g.t, g.secret, user, longLife, map[string]any{"role": "evil"})
}

// manners are how a well-behaved client proves who it is.
type manners struct {
	byMessage bool          // and not in the handshake
	renews    time.Duration // how often it renews its token unasked; 0: when the server says that it ends
}

// mannersOf differ from client to client, and are always the same for one.
func mannersOf(who string) manners {
	hash := fnv.New32()
	hash.Write([]byte(who))
	n := hash.Sum32()
	m := manners{byMessage: n%2 == 0}
	if n%3 == 0 {
		m.renews = 10 * time.Second // the server takes one token each 6 s
	}
	return m
}

// bearer is the value of the header Authorization with a token, or "" without one.
func bearer(token string) string {
	if token == "" {
		return ""
	}
	return "Bearer " + token
}
