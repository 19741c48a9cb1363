package schedule

import (
	"errors"
	"testing"
	"time"
)

func mustTimes(t testing.TB, expression, zone string) *Times {
	t.Helper()
	times, err := ParseTimes(expression, zone)
	if err != nil {
		t.Fatal(err)
	}
	return times
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	out, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestNext_DaylightSaving: due times around the days on which clocks change, in two zones and one whose clocks change by half an hour.
func TestNext_DaylightSaving(t *testing.T) {
	for name, c := range map[string]struct {
		cron, zone, after string
		want              []string
	}{
		"Berlin skips 02:30": {"30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z",
			[]string{"2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"}},
		"Berlin repeats 02:30": {"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		"Berlin, in the repeated hour": {"45 2 * * *", "Europe/Berlin", "2026-10-25T02:30:00+01:00", []string{"2026-10-26T02:45:00+01:00"}},
		"New York skips 02:15 and 02:45 together": {"15,45 2 * * *", "America/New_York", "2026-03-07T12:00:00Z",
			[]string{"2026-03-08T03:00:00-04:00", "2026-03-09T02:15:00-04:00"}},
		"New York repeats 01:00 once": {"0 1 * * *", "America/New_York", "2026-10-31T12:00:00Z",
			[]string{"2026-11-01T01:00:00-04:00", "2026-11-02T01:00:00-05:00"}},
		"every half hour in the skipped hour": {"*/30 * * * *", "Europe/Berlin", "2026-03-29T01:30:00+01:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00"}},
		"every half hour in the repeated hour": {"*/30 * * * *", "America/New_York", "2026-11-01T01:00:00-04:00",
			[]string{"2026-11-01T01:30:00-04:00", "2026-11-01T01:00:00-05:00", "2026-11-01T01:30:00-05:00", "2026-11-01T02:00:00-05:00"}},
		"half an hour on Lord Howe": {"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00+11:00",
			[]string{"2026-04-04T01:45:00+11:00", "2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"}},
		"no midnight in Beirut": {"0 0 * * *", "Asia/Beirut", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T01:00:00+03:00", "2026-03-30T00:00:00+03:00"}},
		"a day that Samoa never had": {"0 12 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00Z", []string{"2011-12-31T00:00:00+14:00"}},
		"leap day":                   {"0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z"}},
		"every":                      {"@every 90s", "UTC", "2026-01-01T00:00:00Z", []string{"2026-01-01T00:01:30Z", "2026-01-01T00:03:00Z"}},
		"daily":                      {"@daily", "Asia/Kolkata", "2026-01-01T00:00:00Z", []string{"2026-01-02T00:00:00+05:30"}},
	} {
		t.Run(name, func(t *testing.T) {
			times := mustTimes(t, c.cron, c.zone)
			now := at(t, c.after)
			for _, want := range c.want {
				if now = times.Next(now); !now.Equal(at(t, want)) {
					t.Fatalf("due at %v, want %s", now, want)
				}
			}
		})
	}
}

// TestLatest compares Latest with a walk through all due times.
func TestLatest(t *testing.T) {
	for _, c := range []struct{ cron, zone string }{
		{"*/7 * * * *", "Europe/Berlin"}, {"30 2 * * *", "Europe/Berlin"}, {"0 9 * * 1", "America/New_York"}, {"@every 13m", "UTC"}, {"0 0 1 1 *", "UTC"},
	} {
		times := mustTimes(t, c.cron, c.zone)
		first := times.Next(at(t, "2026-03-25T00:00:00Z"))
		for _, away := range []time.Duration{0, time.Second, time.Hour, 25 * time.Hour, 200 * 24 * time.Hour, 800 * 24 * time.Hour} {
			now := first.Add(away)
			want := first
			for next := times.Next(want); !next.After(now); next = times.Next(next) {
				want = next
			}
			if got := times.Latest(first, now); !got.Equal(want) {
				t.Errorf("%s in %s, %v after %v: latest %v, want %v", c.cron, c.zone, away, first, got, want)
			}
		}
	}
}

func TestParseTimes_Invalid(t *testing.T) {
	for _, c := range []struct{ cron, zone, field string }{
		{"", "UTC", "cron"}, {"* * * *", "UTC", "cron"}, {"61 * * * *", "UTC", "cron"}, {"* * * * * *", "UTC", "cron"}, {"TZ=0", "UTC", "cron"},
		{"CRON_TZ=UTC", "UTC", "cron"}, {"@reboot", "UTC", "cron"}, {"@every 99999h", "UTC", "cron"}, {"@every 999ms", "UTC", "cron"}, {"@every 0s", "UTC", "cron"}, {"@every -1h", "UTC", "cron"}, {"*/0 * * * *", "UTC", "cron"},
		{"* * * * *", "Mars/Olympus", "time_zone"}, {"* * * * *", "", "time_zone"}, {"* * * * *", "Local", "time_zone"}, {"* * * * *", "../etc/passwd", "time_zone"},
	} {
		_, err := ParseTimes(c.cron, c.zone)
		invalid, is := errors.AsType[*InvalidError](err)
		if !is || invalid.Field != c.field {
			t.Errorf("%q in %q: %v, want an error about %s", c.cron, c.zone, err, c.field)
		}
	}
}

// FuzzParseTimes: no expression makes the parser or the search panic, and due times increase.
func FuzzParseTimes(f *testing.F) {
	for _, s := range []string{"* * * * *", "30 2 * * *", "@every 5s", "*/15 0-5 1,15 JAN-MAR MON", "0 0 30 2 *", "? ? ? ? ?", "TZ=0", "*/9223372036854775807 * * * *"} {
		f.Add(s, int64(1774742400))
	}
	f.Fuzz(func(t *testing.T, expression string, unix int64) {
		times, err := ParseTimes(expression, "Europe/Berlin")
		if err != nil {
			return
		}
		now := time.Unix(unix%(1<<32), 0)
		for range 3 {
			next := times.Next(now)
			if next.IsZero() {
				return
			}
			if !next.After(now) {
				t.Fatalf("%q: due at %v, after %v", expression, next, now)
			}
			if latest := times.Latest(next, next); !latest.Equal(next) {
				t.Fatalf("%q: latest at %v is %v", expression, next, latest)
			}
			now = next
		}
	})
}
