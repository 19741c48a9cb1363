package live

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/tidewire/tidewire/internal/bench"
)

// Event is one line of a run that another program watches: it has a line of the log, a step or a tick.
type Event struct {
	Line string      `json:"line,omitempty"`
	Step *Step       `json:"step,omitempty"`
	Tick *bench.Tick `json:"tick,omitempty"`
}

// Step is where a run is: at the step Number of Of.
type Step struct {
	Row    string `json:"row"`
	Number int    `json:"number"`
	Of     int    `json:"of"`
	Phase  string `json:"phase"`
}

// events writes each Event as a line of JSON. Safe for concurrent use.
type events struct {
	mu  sync.Mutex
	out io.Writer
}

func (e *events) write(event Event) error {
	data, err := json.Marshal(event)
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	_, err = e.out.Write(append(data, '\n'))
	return err
}
