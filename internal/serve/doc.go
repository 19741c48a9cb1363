// Package serve runs a server: it wires the edge (package gateway) to an engine, and owns the order in which they begin and
// end. A stop takes a bounded time, which is shared out among its stages: edges end first, what keeps messages last.
package serve
