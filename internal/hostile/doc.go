// Package hostile attacks a running server from outside, beside well-behaved
// clients that keep a ledger of what they were promised. It holds tests only:
//
//	make test-hostile SEED=7 DURATION=10m ATTACK=trickle,join-unread
//
// The server is a `tidewire serve` process on a real PostgreSQL. Attacks are
// small functions with a name; a seed picks them, and several run at once. Well-behaved
// clients publish, subscribe, work, chat, append and read meanwhile. The server
// may limit, refuse and cut off attackers as it likes. It has to
//
//   - live, within its memory;
//   - give no wrong answer: an attack says which answers are wrong;
//   - serve the well-behaved: every request is answered, and no connection ends;
//   - keep every promise: in the end, ledgers are compared with PostgreSQL;
//   - release what attackers held, once they have gone;
//   - stop within its time, while attackers hold on to it, and serve again after.
package hostile
