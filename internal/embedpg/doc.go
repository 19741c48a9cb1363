// Package embedpg finds or fetches PostgreSQL and runs a private one, so that
// `tidewire serve` needs no database set up by hand. What it stores is real
// data: a directory it did not make, or that holds another major version, is
// never written to, and nothing here ever deletes a database.
//
// A data directory looks like this:
//
//	tidewire.lock   flock held by the owner, who alone may start or stop PostgreSQL; holds its pid
//	pgdata/         PostgreSQL's own data directory, renamed into place when complete
//	run/            the socket, 0700
//	postgres.log    what PostgreSQL says
//	detached        exists if PostgreSQL is to outlive its owner (`tidewire db start`)
//
// PostgreSQL listens on that socket only, and asks the kernel who connects
// (peer authentication), so there is no password to leak. It runs in a session
// of its own: it outlives a killed owner, and the next one adopts it.
//
// Started by root, PostgreSQL runs as the owner of pgdata, which for a new one
// is the user postgres, or else nobody. Everything beside pgdata and run stays
// root's, so that this user cannot mislead root.
package embedpg
