// Package serve runs a server: it connects package gateway to an engine, and controls the order in which they start and
// stop. A stop takes a bounded time, which is divided among its stages: the gateway stops first, the engine last.
package serve
