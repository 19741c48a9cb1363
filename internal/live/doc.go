// Package live shows the progress of a benchmark.
//
// On a terminal it draws a page in the alternate screen: log lines cannot damage it, a
// change of the window's size leaves no remains, and the page leaves nothing in the
// scrollback. It shows the log, and writes it out when it closes. Without a terminal,
// with NO_COLOR, and on a terminal that cannot move its cursor, one plain line for each
// interval is printed instead.
//
// A measured process never waits for the page: if the terminal is too slow, updates are
// skipped. The page is drawn once a second, by the generator's process, so its CPU time
// counts as the generator's.
//
// The first Ctrl-C closes the page, restores the terminal, and is then passed on as the
// usual signal. So a second Ctrl-C ends the program with the terminal in order.
package live
