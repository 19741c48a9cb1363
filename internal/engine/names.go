package engine

import "strings"

// ReservedPrefix begins the names of streams, queues, groups and event stores that
// are the server's own: it keeps stored rooms in such a stream. No request of a
// client names one.
const ReservedPrefix = "tidewire."

// Reserved reports whether a name is the server's own.
func Reserved(name string) bool { return strings.HasPrefix(name, ReservedPrefix) }
