// Package standby reads from a standby of PostgreSQL (follower reads), to take load off the primary. The packages
// stream and eventstore accept a Reader; without one, all reads go to the primary.
//
// A Reader only decides whether the standby can be queried: it belongs to the primary's cluster, and has not failed recently. The
// packages check whether its answer is right. They compare two values with those of the primary: the current history (see
// migrate/sql/0001_histories.sql), and the position of the last message or event. If the histories are the same, the standby has
// everything that the primary has, from the beginning up to some position, and nothing else up to the primary's last position. So
// readers cannot tell whether a page came from the standby.
package standby
