package doctor

import (
	"strings"
	"testing"
	"time"
)

// one is the only finding of judge.
func one(t *testing.T, judge func(*findings)) Finding {
	t.Helper()
	var f findings
	if judge(&f); len(f.list) != 1 {
		t.Fatalf("%+v, want one", f.list)
	}
	return f.list[0]
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		number int
		day    string
		level  Level
		text   string
	}{
		{130018, "2026-01-01", Error, "too old"},
		{190001, "2026-01-01", Note, "not tested"},
		{140024, "2026-11-12", OK, "14.24"},
		{140024, "2026-11-13", Warning, "no fixes any more"},
		{180006, "2026-12-01", OK, "18.6"},
		{180005, "2026-12-01", Note, "18.6 has fixes"},
		{180002, "2026-12-01", Warning, "18.6 is there"},
		{180009, "2026-12-01", OK, "18.9"}, // newer than this program
	} {
		now, _ := time.Parse(time.DateOnly, c.day)
		f := one(t, func(f *findings) { (&doctor{}).judgeVersion(f, c.number, now) })
		if f.Level != c.level || !strings.Contains(f.Text, c.text) || f.Level != OK && c.level != Note && f.Advice == "" {
			t.Errorf("%d on %s: %+v, want %v with %q", c.number, c.day, f, c.level, c.text)
		}
	}
}

func TestStandby_Judged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		standby
		level Level
	}{
		{standby{name: "a", state: "streaming"}, OK},
		{standby{name: "a", state: "streaming", bytes: 300 << 20}, Warning},
		{standby{name: "a", state: "streaming", lag: 61}, Warning},
		{standby{name: "a", state: "catchup", bytes: 300 << 20}, Warning},
		{standby{name: "a", state: "catchup"}, Note},
		{standby{name: "a", state: "stopping"}, Warning},
	} {
		if f := one(t, func(f *findings) { defaultLimits.judgeStandby(f, c.standby) }); f.Level != c.level {
			t.Errorf("%+v: %+v, want %v", c.standby, f, c.level)
		}
	}
}

func TestAge_Judged(t *testing.T) {
	t.Parallel()
	for age, want := range map[int64]Level{200_000_000: OK, 300_000_001: Warning, 1<<30 + 1: Error} {
		var f findings
		judgeAge(&f, "d", "transactions", age, 200_000_000)
		if got := append(f.list, Finding{})[0].Level; got != want {
			t.Errorf("%d: %v, want %v", age, got, want)
		}
	}
}

func TestDisk(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		disk  *Disk
		level Level
	}{
		{nil, OK}, {&Disk{Free: 50 << 30, Total: 100 << 30}, OK}, {&Disk{Free: 9 << 30, Total: 100 << 30}, Warning}, {&Disk{Free: 1 << 29, Total: 2 << 30}, Error},
	} {
		d := &doctor{cfg: Config{Disk: c.disk}, facts: facts{settings: map[string]setting{"max_wal_size": {number: 1024}}}}
		if f := one(t, func(f *findings) { lookDisk(t.Context(), &session{nil, d}, f) }); f.Level != c.level {
			t.Errorf("%+v: %+v, want %v", c.disk, f, c.level)
		}
	}
}
