package live

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/tidewire/tidewire/internal/bench"
)

const (
	// narrow is the width below which a page has no bars and uses short words.
	narrow = 60
	// cellWidth is the minimum width of a figure with its label.
	cellWidth = 24
	// plotMost is the maximum height of the plot, and plotLeast its height on small terminals.
	plotMost, plotLeast = 8, 2
	// logLeast is the number of log lines that the plot leaves room for.
	logLeast = 2
)

// block is a group of lines of the page. If there is no room, the blocks with
// the highest drop are removed first; those with 0 stay.
type block struct {
	lines []string
	drop  int
}

// page returns the lines that fill the terminal.
func (m *model) page() (page []string) {
	foot := m.foot()
	room := m.height - len(foot)
	parts := m.parts(plotLeast)
	if spare := room - lineCount(parts) - logLeast; spare > 0 {
		parts = m.parts(min(plotLeast+spare, plotMost))
	}
	for lineCount(parts) > room {
		last := slices.MaxFunc(parts, func(a, b block) int { return cmp.Compare(a.drop, b.drop) }).drop
		if last == 0 {
			break
		}
		parts = slices.DeleteFunc(parts, func(b block) bool { return b.drop == last })
	}
	for _, b := range parts {
		page = append(page, b.lines...)
	}
	page = append(page, m.lastLines(max(room-len(page), 0))...)
	page = append(page, foot...)
	page = page[:min(len(page), m.height)]
	for i, l := range page {
		page[i] = lipgloss.NewStyle().MaxWidth(m.width).Render(l)
	}
	return page
}

// parts returns all blocks above the log.
func (m *model) parts(plotRows int) []block {
	blank := block{[]string{""}, 4}
	return []block{
		{m.head(), 0}, blank, {m.figures(), 0}, blank, {m.latencies(plotRows), 3}, {m.usage(), 2}, {m.words(), 1}, blank,
	}
}

func lineCount(blocks []block) (n int) {
	for _, b := range blocks {
		n += len(b.lines)
	}
	return n
}

// ends puts two texts at the two ends of a line. If there is no room, the right one is cut.
func (m *model) ends(left, right string) string {
	gap := m.width - 2 - lipgloss.Width(left) - lipgloss.Width(right)
	if gap < 1 {
		return " " + left
	}
	return " " + left + strings.Repeat(" ", gap) + right
}

// head shows the step and its progress.
func (m *model) head() []string {
	gone, total := m.elapsed()
	times := clock(gone) + " elapsed"
	if total > 0 {
		times = clock(gone) + " of about " + clock(total)
	}
	scenario := strings.TrimSpace("tidewire bench " + m.stage.Scenario)
	lines := []string{m.ends(m.strong.Render(scenario), times)}
	if m.row() == "" {
		return append(lines, " preparing", "")
	}
	step := ""
	if m.stage.Number > 0 {
		step = fmt.Sprintf("step %d of %d · ", m.stage.Number, m.stage.Of)
	}
	step += m.strong.Render(m.row()) + fmt.Sprintf(" · round %d", m.stage.Trial+1)
	lines = append(lines, m.ends(step, m.note()))
	share, text, ok := m.share()
	phase := fmt.Sprintf("%-8s", m.stage.Phase)
	if !ok {
		return append(lines, " "+phase+"  "+clock(m.now.Sub(m.phaseAt)))
	}
	cells := m.width - 5 - lipgloss.Width(phase) - lipgloss.Width(text)
	return append(lines, " "+phase+" "+m.gauge(share, cells)+" "+text)
}

// note returns a short remark about the step, such as a pause.
func (m *model) note() string {
	switch {
	case m.notice != "":
		return m.alarm.Render(m.notice)
	case m.stage.Phase == bench.PhasePaused:
		return m.alarm.Render("paused: p goes on")
	case m.paused:
		return m.alarm.Render("pauses before the next step")
	case m.warmedUp:
		return m.faint.Render("warm-up done")
	case m.stage.Phase == bench.PhaseWarmUp:
		return m.faint.Render("warming up")
	}
	return ""
}

// gauge draws a bar on its track.
func (m *model) gauge(share float64, cells int) string {
	cells = max(cells, 1)
	full := bar(share, cells)
	return m.accent.Render(full) + m.faint.Render(strings.Repeat("·", cells-lipgloss.Width(full)))
}

// figure is one number of the page.
type figure struct {
	label, value string
	alarm        bool
}

// figures shows the rates, and the latencies of the last second, in columns.
func (m *model) figures() []string {
	now := m.metrics()
	value := func(name string, format func(float64) string) string {
		if v, ok := now[name]; ok {
			return format(v)
		}
		return absent
	}
	rate := func(v float64) string { return count(v) + "/s" }
	offered, kept := value("offered_messages_per_second", rate), absent
	if want := now["offered_messages_per_second"]; want > 0 {
		kept = fmt.Sprintf("%.0f %%", 100*now["messages_per_second"]/want)
	} else if now != nil {
		offered = "no limit"
	}
	return m.columns([]figure{
		{"achieved", value("messages_per_second", rate), false}, {"offered", offered, false}, {"of offered", kept, false},
		{"deliveries", value("deliveries_per_second", rate), false},
		{"errors", count(m.errors), m.errors > 0}, {"missing", value("missing", count), false},
		{"p50", value("latency_p50_ms", duration), false}, {"p99", value("latency_p99_ms", duration), false},
		{"p99.9", value("latency_p999_ms", duration), false},
	})
}

// columns arranges figures in columns, as many as fit, three at most.
func (m *model) columns(all []figure) (lines []string) {
	const gap = 3
	each := min(max((m.width-2+gap)/cellWidth, 1), 3)
	width := (m.width - 2 - (each-1)*gap) / each
	for row := range slices.Chunk(all, each) {
		var cells []string
		for _, f := range row {
			space := strings.Repeat(" ", max(1, width-lipgloss.Width(f.label)-lipgloss.Width(f.value)))
			style := m.strong
			if f.alarm {
				style = m.alarm
			}
			cells = append(cells, m.faint.Render(f.label)+space+style.Render(f.value))
		}
		lines = append(lines, " "+strings.Join(cells, strings.Repeat(" ", gap)))
	}
	return lines
}

// latencies plots p99, with a legend below.
func (m *model) latencies(rows int) (lines []string) {
	const label = 8
	values := m.series("latency_p99_ms", min(m.width-label-3, ticksKept))
	drawn, low, high := plot(values, rows)
	for i, row := range drawn {
		name := ""
		switch i {
		case 0:
			name = decade(high)
		case rows - 1:
			name = decade(low)
		}
		lines = append(lines, m.faint.Render(fmt.Sprintf("%*s ┤", label, name))+m.accent.Render(row))
	}
	text := "p99 of each second"
	if m.width < narrow {
		text = "p99"
	}
	if n := len(values); n > 0 {
		span := 0.0
		for _, t := range m.ticks[len(m.ticks)-n:] {
			span += t.Seconds
		}
		text += fmt.Sprintf(", last %.0f s", span)
	}
	text += ", log scale"
	return append(lines, m.faint.Render(fmt.Sprintf("%*s └ %s", label, "", text)))
}

// usage shows the CPU and the memory of each role.
func (m *model) usage() (lines []string) {
	now := m.metrics()
	for _, part := range []struct{ label, metric string }{{"server", "server"}, {"PostgreSQL", "postgres"}, {"generator", "generator"}} {
		cpu, hasCPU := now[part.metric+"_cpu_cores"]
		rss, hasRSS := now[part.metric+"_rss_bytes"]
		cores, memory := absent, absent
		if hasCPU {
			cores = fmt.Sprintf("%.2f of %d cores", cpu, m.cores)
		}
		if hasRSS {
			memory = size(rss)
		}
		label := m.faint.Render(fmt.Sprintf("%-11s", part.label))
		if m.width < narrow {
			lines = append(lines, fmt.Sprintf(" %s%16s  memory %s", label, cores, memory))
			continue
		}
		cells := (m.width - 54) / 2
		lines = append(lines, fmt.Sprintf(" %sCPU %s %-16s  memory %s %s", label,
			m.gauge(cpu/float64(max(m.cores, 1)), cells), cores, m.gauge(rss/max(m.memory, 1), cells), memory))
	}
	return lines
}

// words shows the lag of the generator, durability, and the limit, as text.
func (m *model) words() []string {
	lag := absent
	if late, ok := m.metrics()["generator_late_p99_ms"]; ok {
		lag = "p99 " + duration(late) + " later than intended"
	}
	line := func(label, text string, style lipgloss.Style) string {
		return " " + m.faint.Render(fmt.Sprintf("%-15s", label)) + style.Render(text)
	}
	limit := m.limit(m.cores)
	style := m.strong
	if limit == bench.LimitGenerator { // the figures describe the generator
		style = m.alarm
	}
	return []string{
		line("generator lag", lag, m.plain),
		line("durability", cmp.Or(m.durability(), absent), m.plain),
		line("limits now", cmp.Or(limit, absent), style),
	}
}

// lastLines returns the last lines of the log that fit.
func (m *model) lastLines(room int) (lines []string) {
	for _, l := range m.log[max(0, len(m.log)-room):] {
		lines = append(lines, " "+m.faint.Render(l))
	}
	for len(lines) < room {
		lines = append(lines, "")
	}
	return lines
}

// foot shows the available keys.
func (m *model) foot() []string {
	if !m.keyboard {
		return nil
	}
	pause := "pause before next step"
	if m.paused {
		pause = "go on"
	}
	keys := [][2]string{{"p", pause}, {"s", "skip step"}, {"q", "quit, keep results"}, {"ctrl+c", "stop"}}
	if m.width < narrow {
		keys = [][2]string{{"p", strings.TrimSuffix(pause, " before next step")}, {"s", "skip"}, {"q", "quit"}, {"^C", "stop"}}
	}
	var parts []string
	for _, k := range keys {
		parts = append(parts, m.strong.Render(k[0])+" "+m.faint.Render(k[1]))
	}
	return []string{" " + strings.Join(parts, "   ")}
}
