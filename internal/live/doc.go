// Package live shows how a benchmark goes on.
//
// On a terminal that is a page of its own, in the alternate screen: nothing that
// is logged meanwhile can tear it, a change of the window's size leaves no
// remains, and the table of results that follows is the only thing the scrollback
// has to hold. What was logged is shown in the page, and written out when it
// closes. Elsewhere, with NO_COLOR, and on a terminal that cannot move its cursor,
// there is one plain line for each interval instead.
//
// A process that is measured never waits for the page: what the terminal is too slow to
// show is left out. The page is drawn once a second, by the generator's process,
// whose CPU time it belongs to.
//
// The first Ctrl-C closes the page and is then passed on as the signal that it
// would have been; so the second one ends the program, from a terminal that is in
// order again.
package live
