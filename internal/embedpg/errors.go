package embedpg

import "errors"

// Callers branch on these; the wrapping message says what to do next.
var (
	// ErrInUse means that another process owns the data directory.
	ErrInUse = errors.New("data directory is in use")
	// ErrVersion means that Tidewire does not work with the version that was asked for.
	ErrVersion = errors.New("version of PostgreSQL is too old")
	// ErrOtherMajor means that the data directory needs a major version of
	// PostgreSQL that differs from the requested one, or is not available.
	ErrOtherMajor = errors.New("data directory has another major version of PostgreSQL")
	// ErrForeignDir means that the directory holds files of someone else.
	ErrForeignDir = errors.New("directory is not a Tidewire data directory")
	// ErrNotWritable means that a directory cannot be created, entered or written.
	ErrNotWritable = errors.New("directory is not usable")
	// ErrNoBinaries means that no suitable PostgreSQL is installed.
	ErrNoBinaries = errors.New("no suitable PostgreSQL found")
	// ErrFetch means that PostgreSQL could not be fetched.
	ErrFetch = errors.New("cannot fetch PostgreSQL")
	// ErrNoUser means that there is no operating system user to run PostgreSQL as.
	ErrNoUser = errors.New("no user to run PostgreSQL as")
	// ErrStart means that PostgreSQL or initdb failed; the message has its last lines of output.
	ErrStart = errors.New("PostgreSQL did not start")
	// ErrNotRunning means that no PostgreSQL runs in the data directory.
	ErrNotRunning = errors.New("PostgreSQL is not running")
)
