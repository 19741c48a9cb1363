// Package schedule enqueues and publishes messages at times: once, or repeatedly by a cron expression.
//
// A schedule is a row of tidewire.schedules. Each server has a Runner. A Runner moves due schedules to their next due times and writes their messages in one
// transaction, so each due time has exactly one message, with any number of servers, and also if a server ends in the middle. Times are compared with the
// clock of PostgreSQL.
//
// # Missed due times
//
// If no server has run at a due time, Schedule.CatchUp decides: Latest writes one message, for the latest missed due time; None writes one only if the latest
// due time was at most a minute ago; All writes one for each due time of the last 24 hours, and at least one. A due time whose message cannot be written, because there is no queue or
// stream of that name, stays due: the Runner tries again after 10 s, and then after longer pauses of up to 10 min, and CatchUp decides when it succeeds.
// While a schedule is paused, its due times are not missed: they do not exist.
//
// # Time zones
//
// An expression whose hour field has all hours (*) counts elapsed time: each hour has its due times, also the repeated one when clocks go back. Every other
// expression goes by the wall clock: a time that clocks skip is due at the moment when they skip it, and a repeated time is due once, the first time. Several
// due times that fall into one skipped hour are due once together. Zone data is part of the program.
//
// # The parser
//
// Expressions have five fields, or are @hourly, @daily, @weekly, @monthly, @yearly or @every DURATION. The parser is robfig/cron v3: it has no dependencies,
// and its syntax is what users of Go know. It has had no release for years, but this package uses only its parser, and its search for the next time in a zone
// with a constant offset. It skips times in a skipped hour and repeats those in a repeated one, so daylight saving time is handled here. It panics on some
// expressions that begin with TZ=, which are rejected before.
package schedule
