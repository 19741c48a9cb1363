// Package standby reads from a standby of PostgreSQL, so that the primary has less to do. The packages stream and
// eventstore take a Reader; without one, all reads go to the primary.
//
// A Reader says only whether the standby can be asked: it is of the primary's cluster, and has not failed a moment ago. Whether its
// answer is right is for the packages to say. They compare two figures with those of the primary: the history that goes
// on (see migrate/sql/0001_histories.sql), and the position of the last message or event. If the histories are the same, the standby
// has what the primary has up to some position, from the beginning on, and nothing else up to the primary's last position. So a
// reader never sees whether a page came from the standby.
package standby
