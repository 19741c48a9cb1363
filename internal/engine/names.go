package engine

import "strings"

// ReservedPrefix begins the names of streams, queues, groups and event stores that
// the server reserves for itself, such as the stream of stored rooms. Clients
// cannot use them.
const ReservedPrefix = "tidewire."

// Reserved reports whether a name is reserved for the server.
func Reserved(name string) bool { return strings.HasPrefix(name, ReservedPrefix) }
