package bench

import (
	"context"
	"maps"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/host"
	"github.com/shirou/gopsutil/v4/mem"
)

// Environment describes where a result was measured. Two results may be
// compared only if it is the same.
type Environment struct {
	CPU         string `json:"cpu"`
	Cores       int    `json:"cores"`
	MemoryBytes uint64 `json:"memory_bytes"`
	OS          string `json:"os"`
	Kernel      string `json:"kernel"`
	Go          string `json:"go"`
	Commit      string `json:"commit,omitempty"`
	// CPUSteal is the share of CPU time that the hypervisor gave to other
	// machines during the run, 0 to 1.
	CPUSteal float64 `json:"cpu_steal"`

	PostgreSQL *PostgreSQL `json:"postgresql,omitempty"`
}

// PostgreSQL is the database of a run.
type PostgreSQL struct {
	Version string `json:"version"`
	// Disk is the file system of the data directory, if it is on this machine.
	Disk string `json:"disk,omitempty"`
	// SyncP50Ms and SyncP99Ms are how long that disk took to make 8 KiB durable
	// before the run: see SyncLatency. They are 0 if it could not be measured.
	SyncP50Ms float64 `json:"sync_p50_ms,omitempty"`
	SyncP99Ms float64 `json:"sync_p99_ms,omitempty"`
	// Durability has the settings that the durability of a commit depends on.
	Durability map[string]string `json:"durability"`
	// Settings are those that differ from PostgreSQL's defaults and may change a figure.
	Settings map[string]string `json:"settings"`
}

// CaptureEnvironment describes this machine and program. Unknown fields stay
// empty.
func CaptureEnvironment(ctx context.Context) Environment {
	env := Environment{Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Commit: commit()}
	if infos, err := cpu.InfoWithContext(ctx); err == nil && len(infos) > 0 {
		env.CPU = infos[0].ModelName
	}
	if m, err := mem.VirtualMemoryWithContext(ctx); err == nil {
		env.MemoryBytes = m.Total
	}
	if h, err := host.InfoWithContext(ctx); err == nil {
		env.Kernel = h.KernelVersion
		if h.Platform != "" {
			env.OS += " " + h.Platform + " " + h.PlatformVersion
		}
	}
	return env
}

// commit is the revision that the program was built from, with "+changes" if
// the checkout had any.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var revision, changes string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changes = "+changes"
		}
	}
	return revision + changes
}

const (
	durabilitySQL = `
SELECT name, setting FROM pg_settings
WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'wal_sync_method', 'wal_level')`
	// Settings of this database session only do not describe the server.
	settingsSQL = `
SELECT name, setting FROM pg_settings
WHERE source NOT IN ('default', 'override', 'client', 'session', 'environment variable')
  AND setting IS DISTINCT FROM boot_val`
)

// noFigure matches settings that cannot change a figure: where a cluster is stored, how
// it is reached, its name, and its language and time zone.
var noFigure = regexp.MustCompile(`director(y|ies)$|_file$|^lc_|^DateStyle$|[Tt]ime_?[Zz]one$|^default_text_search_config$|^cluster_name$` +
	`|^port$|^listen_addresses$|^unix_socket_|^bonjour|^external_pid_file$|^event_source$|^syslog_`)

// ChangesFigures reports whether a setting of PostgreSQL may change the measured figures.
func ChangesFigures(setting string) bool { return !noFigure.MatchString(setting) }

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// CapturePostgreSQL describes the server of db.
func CapturePostgreSQL(ctx context.Context, db Querier) (*PostgreSQL, error) {
	var p PostgreSQL
	if err := db.QueryRow(ctx, `SHOW server_version`).Scan(&p.Version); err != nil {
		return nil, err
	}
	var err error
	if p.Durability, err = settings(ctx, db, durabilitySQL); err != nil {
		return nil, err
	}
	if p.Settings, err = settings(ctx, db, settingsSQL); err != nil {
		return nil, err
	}
	maps.DeleteFunc(p.Settings, func(name, _ string) bool { return !ChangesFigures(name) })
	var dir string // readable by privileged users only
	if err := db.QueryRow(ctx, `SHOW data_directory`).Scan(&dir); err == nil {
		p.Disk = fileSystem(ctx, dir)
		if h, err := SyncLatency(dir); err == nil { // unknown if this user may not write there
			p.SyncP50Ms, p.SyncP99Ms = milliseconds(h.Quantile(0.5)), milliseconds(h.Quantile(0.99))
		}
	}
	return &p, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func settings(ctx context.Context, db Querier, sql string) (map[string]string, error) {
	rows, err := db.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string)
	var name, value string
	_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		out[name] = value
		return nil
	})
	return out, err
}

// fileSystem names the type and device of the mount that holds path.
func fileSystem(ctx context.Context, path string) string {
	parts, err := disk.PartitionsWithContext(ctx, true)
	if err != nil {
		return ""
	}
	best, name := "", ""
	for _, part := range parts {
		if mount := strings.TrimSuffix(part.Mountpoint, "/"); strings.HasPrefix(path, mount+"/") && len(part.Mountpoint) > len(best) {
			best, name = part.Mountpoint, part.Fstype+" on "+part.Device
		}
	}
	return name
}
