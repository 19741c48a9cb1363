package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// TestAttack_BadSchedules: none of these is taken, and the answer names the field.
func TestAttack_BadSchedules(t *testing.T) {
	t.Parallel()
	one := serveDatabase(t, migrated.Open(t), nil)
	if err := one.engine.Queues.Create(t.Context(), "q", nil); err != nil {
		t.Fatal(err)
	}
	c := client{t, one.addr}
	const good = `,"queue":"q","payload":"x"`
	long := strings.Repeat("1,", 100_000)
	for body, field := range map[string]string{
		`"cron":"","time_zone":"UTC"` + good:                             "cron",
		`"cron":"* * * *","time_zone":"UTC"` + good:                      "cron",
		`"cron":"* * * * * *","time_zone":"UTC"` + good:                  "cron",
		`"cron":"60 * * * *","time_zone":"UTC"` + good:                   "cron",
		`"cron":"*/0 * * * *","time_zone":"UTC"` + good:                  "cron",
		`"cron":"5-1 * * * *","time_zone":"UTC"` + good:                  "cron",
		`"cron":"99999999999999999999 * * * *","time_zone":"UTC"` + good: "cron",
		`"cron":"` + long + `1 * * * *","time_zone":"UTC"` + good:        "cron",
		`"cron":"@every 0s","time_zone":"UTC"` + good:                    "cron",
		`"cron":"@every -1h","time_zone":"UTC"` + good:                   "cron",
		`"cron":"@every 1ns","time_zone":"UTC"` + good:                   "cron",
		`"cron":"@every 9999999h","time_zone":"UTC"` + good:              "cron",
		`"cron":"TZ=UTC * * * * *","time_zone":"UTC"` + good:             "cron",
		`"cron":"TZ=","time_zone":"UTC"` + good:                          "cron",
		`"cron":"@reboot","time_zone":"UTC"` + good:                      "cron",
		`"cron":"* * 30 2 *","time_zone":"UTC"` + good:                   "cron",
		`"cron":"\u0000 * * * *","time_zone":"UTC"` + good:               "cron",
		`"cron":"* * * * *","time_zone":"Mars/Base"` + good:              "time_zone",
		`"cron":"* * * * *","time_zone":"../../etc/passwd"` + good:       "time_zone",
		`"cron":"* * * * *","time_zone":"/etc/localtime"` + good:         "time_zone",
		`"cron":"* * * * *","time_zone":"Local"` + good:                  "time_zone",
		`"cron":"* * * * *","time_zone":"\u0000"` + good:                 "time_zone",
		`"cron":"* * * * *","time_zone":"` + long + `"` + good:           "time_zone",
		`"cron":"* * * * *","at":"2026-01-01T00:00:00Z"` + good:          "cron",
		`"at":"0000-00-00T00:00:00Z"` + good:                             "at",
		`"at":"2026-01-01T00:00:00+99:99"` + good:                        "at",
		`"at":1e400` + good: "at",
	} {
		c.badSchedule(body, field)
	}
	for _, name := range []string{strings.Repeat("n", 256), "a%00b", "%FF%FE"} {
		if status, text := c.do("PUT", "/v1/schedules/"+name, `{"at":"2026-01-01T00:00:00Z"`+good+`}`); status != http.StatusBadRequest {
			t.Errorf("%.20s: %d %s", name, status, text)
		}
	}
	c.want("GET", "/v1/schedules", "", 200, `{"schedules":[],"next":""}`)
	c.want("GET", "/v1/queues", "", 200, `{"queues":[{"queue":"q"}]}`)
}

// badSchedule expects that a schedule is refused because of a field.
func (c client) badSchedule(body, field string) {
	c.t.Helper()
	status, text := c.do("PUT", "/v1/schedules/s", "{"+body+"}")
	if status != http.StatusBadRequest || !strings.Contains(text, field) {
		c.t.Errorf("%.80s: %d %.300s, want 400 and %s", body, status, text, field)
	}
}

// TestAttack_ScheduleFlood: many schedules that are due at once get their messages, lists have pages of at most 100, and others are served.
func TestAttack_ScheduleFlood(t *testing.T) {
	t.Parallel()
	const makers, each = 4, 30
	one := serveDatabase(t, migrated.Open(t), nil)
	for _, name := range []string{"evil", "good"} {
		if err := one.engine.Queues.Create(t.Context(), name, nil); err != nil {
			t.Fatal(err)
		}
	}
	c := client{t, one.addr}
	var making sync.WaitGroup
	for m := range makers {
		making.Go(func() {
			for n := range each {
				path := fmt.Sprintf("/v1/schedules/s-%d-%d", m, n)
				if status, text := c.do("PUT", path, `{"at":"2020-01-01T00:00:00Z","catch_up":"latest","queue":"evil","payload":"x"}`); status != http.StatusOK {
					t.Errorf("%d %s", status, text)
				}
			}
		})
	}
	for range 20 {
		if status, text := c.do("POST", "/v1/queues/good/messages", `{"payload":"x"}`); status != http.StatusOK {
			t.Errorf("%d %s", status, text)
		}
	}
	making.Wait()
	c.refused("GET", "/v1/schedules?limit=101", "", http.StatusBadRequest, "invalid_parameter")
	listed, after := 0, ""
	for {
		_, text := c.do("GET", "/v1/schedules?limit=100&after="+after, "")
		page := strings.Count(text, `"schedule":`)
		if listed += page; page == 0 || page > 100 {
			break
		}
		_, rest, _ := strings.Cut(text, `"next":"`)
		after, _, _ = strings.Cut(rest, `"`)
	}
	if listed > makers*each {
		t.Errorf("%d schedules are listed, want at most %d", listed, makers*each)
	}
	for n := range makers * each {
		if status, text := c.do("DELETE", fmt.Sprintf("/v1/schedules/s-%d-%d", n%makers, n/makers), ""); status != http.StatusOK && status != http.StatusNotFound {
			t.Errorf("%d %s", status, text)
		}
	}
	c.want("GET", "/v1/schedules", "", 200, `{"schedules":[],"next":""}`)
}

// TestAttack_SchedulesAfter: a page of schedules begins after a name. What PostgreSQL cannot read as a text is none, and no failure of the database.
func TestAttack_SchedulesAfter(t *testing.T) {
	t.Parallel()
	c := client{t, serveDatabase(t, migrated.Open(t), nil).addr}
	for _, after := range []string{"%00", "%ff", strings.Repeat("x", 1000)} {
		c.refused("GET", "/v1/schedules?after="+after, "", http.StatusBadRequest, "invalid_parameter")
	}
}
