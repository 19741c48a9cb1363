package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/tidewire/tidewire/internal/bench"
)

const (
	// muchSteal is the share of CPU time taken by the hypervisor from which the report warns.
	muchSteal = 0.02
	// muchSpread is the distance from the median to the interval's lower bound, as a
	// share of the median, from which the report advises more repeats.
	muchSpread = 0.2
)

// fact is a name and what it is.
type fact struct{ Name, Text string }

// provenance has the facts that support a result.
type provenance struct {
	Cautions   []string
	Machine    []fact
	Database   []fact
	Durability []fact
	Settings   []fact
	Params     []fact
	Checks     []bench.Check
	Limiters   []fact
	Files      []string
	Command    string
}

func newProvenance(f File) provenance {
	env := f.Environment
	e := provenance{Cautions: cautions(f.Result), Checks: f.Checks, Files: append([]string{f.Name}, f.Beside...), Command: f.Command}
	e.Machine = facts(
		fact{"CPU", env.CPU}, fact{"cores", optional(float64(env.Cores), count)},
		fact{"memory", optional(float64(env.MemoryBytes)/(1<<30), func(v float64) string { return fmt.Sprintf("%.0f GiB", v) })},
		fact{"system", strings.TrimSpace(env.OS + ", kernel " + cmp.Or(env.Kernel, "unknown"))},
		fact{"Go", env.Go}, fact{"commit", env.Commit}, fact{"CPU time taken by the hypervisor", share(env.CPUSteal)})
	if p := env.PostgreSQL; p != nil {
		e.Database = facts(fact{"version", p.Version}, fact{"disk", p.Disk},
			fact{"8 KiB made durable, before the run", optional(p.SyncP50Ms, func(v float64) string {
				return fmt.Sprintf("p50 %s ms, p99 %s ms", figure(v), figure(p.SyncP99Ms))
			})})
		e.Durability, e.Settings = factsOf(p.Durability), factsOf(p.Settings)
	}
	for _, name := range sortedKeys(f.Params) {
		e.Params = append(e.Params, fact{name, plain(f.Params[name])})
	}
	e.Limiters = limiters(f.Rows)
	return e
}

// limiters lists what limited the rows, and which rows.
func limiters(rows []bench.Row) (all []fact) {
	names := make(map[string][]string)
	for _, row := range rows {
		if row.Limiter != "" {
			names[row.Limiter] = append(names[row.Limiter], row.Name)
		}
	}
	for _, limiter := range sortedKeys(names) {
		which := strings.Join(names[limiter], ", ")
		if n := len(names[limiter]); n == len(rows) && n > 1 {
			which = "all rows"
		}
		all = append(all, fact{limiter, which})
	}
	return all
}

// plain formats a parameter in one line.
func plain(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []any:
		parts := make([]string, len(v))
		for i, part := range v {
			parts[i] = plain(part)
		}
		return strings.Join(parts, ", ")
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// facts leaves out unknown facts.
func facts(all ...fact) (known []fact) {
	for _, f := range all {
		if f.Text != "" && f.Text != "-" {
			known = append(known, f)
		}
	}
	return known
}

func factsOf(m map[string]string) (all []fact) {
	for _, name := range sortedKeys(m) {
		all = append(all, fact{name, cmp.Or(m[name], `""`)})
	}
	return all
}

// cautions lists reasons to trust a result less.
func cautions(r *bench.Result) (all []string) {
	env := r.Environment
	if strings.HasSuffix(env.Commit, "+changes") {
		all = append(all, "The program was built from a checkout with changes: nobody else can build the same.")
	}
	if env.CPUSteal > muchSteal {
		all = append(all, fmt.Sprintf("The hypervisor gave %s of the CPU time to other machines during the run.", share(env.CPUSteal)))
	}
	if p := env.PostgreSQL; p != nil {
		for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
			if p.Durability[name] == "off" {
				all = append(all, name+" is off: acknowledged data may be lost in a crash.")
			}
		}
	}
	single, wide, own := 0, []string{}, []string{}
	for _, row := range r.Rows {
		if len(row.Trials) < 2 {
			single++
		} else if s := summarise(trials(row, headline(row).metric)); s.Median > 0 && math.Abs(s.Median-s.Low) > muchSpread*s.Median {
			wide = append(wide, row.Name)
		}
		if row.Limiter == bench.LimitGenerator {
			own = append(own, row.Name)
		}
	}
	if single > 0 {
		all = append(all, fmt.Sprintf("%d of %d rows were measured once, and are indicative: --repeat 5 gives intervals.", single, len(r.Rows)))
	}
	if len(wide) > 0 {
		all = append(all, "The repeats differ a lot, so more of them are needed: "+strings.Join(wide, ", ")+".")
	}
	if len(own) > 0 {
		all = append(all, "The load generator was the limit, not the measured system: "+strings.Join(own, ", ")+".")
	}
	return all
}
