// Package access keeps API keys, revocations and the audit log of administrative acts in PostgreSQL, and the answers of the user's own SQL function on rights.
//
// A Store holds all keys and revocations in memory, as an immutable auth.Snapshot. It loads them when it is opened, after a notification, after its
// listening connection was lost and is back, and every 30 s. So a request never waits for the database to have a key or token checked. While the database
// is away, the last snapshot counts.
package access
