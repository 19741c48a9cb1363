// Package hostile attacks a running server from outside, beside well-behaved
// clients that keep a ledger of what they were promised. It holds tests only:
//
//	make test-hostile MODE=closed SEED=7 DURATION=10m ATTACK=trickle,join-unread
//
// The server is a `tidewire serve` process on a real PostgreSQL. Attacks are
// small functions with a name; a seed picks their order, and several run at once. Well-behaved
// clients publish, subscribe, work, chat, append and read meanwhile. The server
// may limit, refuse and cut off attackers as it likes. It has to
//
//   - live, within its memory;
//   - give no wrong answer: an attack says which answers are wrong;
//   - serve the well-behaved: every request is answered, and no connection ends;
//   - keep every promise: in the end, ledgers are compared with PostgreSQL;
//   - release what attackers held, once they have gone;
//   - stop within its time, while attackers hold on to it, and serve again after.
//
// # Modes
//
// In open mode everybody may do everything, and attackers keep to names of their
// own. In closed mode each well-behaved client has a token of its own user, with
// only the rights that it needs. It sends the token in the handshake or as a
// message, and some renew it often. An attacker has no token, or wrong tokens, or
// the token of a user evil-N, who has rights on evil things alone. Whatever an attacker
// gets that it has no right to is a fault. More attacks run in this mode: on the
// proof of who a client is, and on what belongs to others.
//
// Without settings, TestHostile runs each attack once, in closed mode, which has all of them: what
// a test run can wait for. TestHostile_Memory, a long test, runs them again and again in both modes,
// and all that aim at the server's memory at once. What an answer has to be is held where it is made, in
// internal/gateway and internal/auth; here all of it happens at once.
//
// On Linux attackers dial from 127.0.0.2, and the well-behaved from 127.0.0.1.
// They are a process of their own with the lowest priority: see attackers_test.go.
//
// # The table
//
// Each run ends with a row of a table, and make test-hostile prints all rows at
// the end: how long requests of the well-behaved took before the attacks ("alone")
// and during them ("attacked"), the ratio of the two p99s, their messages that were
// answered and those that were lost, the memory of the server at its peak,
// descriptors and goroutines before the attacks, at the peak and after, and what the
// server refused. No test asserts how long something took.
package hostile
