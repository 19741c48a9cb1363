package live

import (
	"strings"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"

	"github.com/tidewire/tidewire/internal/bench"
)

// linesShown is the maximum number of log lines on the page.
const linesShown = 40

// model is the page: bubbletea gives it one message at a time.
type model struct {
	state
	styles
	control  *bench.Control
	cores    int
	memory   float64 // bytes of the machine
	keyboard bool

	width, height int
	log           []string
	paused        bool
	notice        string // the answer to the last key
	interrupted   bool
}

func newModel(control *bench.Control, env bench.Environment, keyboard bool) *model {
	now := time.Now()
	return &model{
		state: state{begun: now, now: now, stepAt: now, phaseAt: now}, styles: newStyles(true),
		control: control, cores: env.Cores, memory: float64(env.MemoryBytes), keyboard: keyboard,
		width: 80, height: 24,
	}
}

// second is the message that a second has passed.
type second time.Time

// Init is called by bubbletea.
func (m *model) Init() tea.Cmd { return tea.RequestBackgroundColor }

// Update is called by bubbletea.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case second:
		m.now = time.Time(msg)
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.BackgroundColorMsg:
		m.styles = newStyles(msg.IsDark())
	case tea.KeyPressMsg:
		return m, m.press(msg.String())
	case bench.Stage:
		if msg.Number != m.stage.Number || msg.Phase == bench.PhasePaused {
			m.notice = ""
		}
		m.enter(msg)
	case bench.Tick:
		m.observe(msg)
	case line:
		m.log = append(m.log, printable(string(msg)))
		m.log = m.log[max(0, len(m.log)-linesShown):]
	}
	return m, nil
}

// press handles a key.
func (m *model) press(key string) tea.Cmd {
	running := m.stage.Number > 0 && m.stage.Phase != bench.PhasePaused
	switch key {
	case "p":
		m.paused, m.notice = !m.paused, ""
		m.control.Pause(m.paused)
	case "s":
		if m.notice = "no step to skip"; running {
			m.notice = "skipping this step"
			m.control.Skip()
		}
	case "q":
		m.notice = "stopping: what was finished is kept"
		m.control.Quit()
	case "ctrl+c":
		m.interrupted = true
		return tea.Quit
	}
	return nil
}

// View is called by bubbletea.
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.page(), "\n"))
	v.AltScreen = true
	return v
}

// printable removes characters that would move the cursor.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}
