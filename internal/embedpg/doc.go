// Package embedpg finds or fetches PostgreSQL and runs a private server, so that
// `tidewire serve` needs no database that was set up by hand. Its data are real
// data: it never writes to a directory that it did not make, or that holds another
// major version, and it never deletes a database.
//
// A data directory looks like this:
//
//	tidewire.lock   flock held by the owner, who alone may start or stop PostgreSQL; holds its pid
//	pgdata/         PostgreSQL's own data directory, renamed into place when complete
//	run/            the socket, 0700
//	postgres.log    what PostgreSQL says
//	detached        exists if PostgreSQL is to outlive its owner (`tidewire db start`)
//
// PostgreSQL listens on that socket only, and uses peer authentication: the kernel
// tells it which user connects, so there is no password to leak. It runs in its own
// process group: it outlives a killed owner, and the next owner adopts it.
//
// If root starts it, PostgreSQL runs as the owner of pgdata. For new data this is the
// user postgres, or nobody if there is no user postgres. All files outside pgdata and
// run belong to root, so that this user cannot trick root.
package embedpg
