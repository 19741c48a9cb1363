package scenario

import (
	"fmt"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
)

// Chats are the scenarios of Chat, in the order of "all".
var Chats = []string{"steady", "burst", "churn", "saturation"}

// chatPayload is the size of a chat's JSON in bytes, as specified for all
// servers.
const chatPayload = 128

// chatStep is one load on a server. A plan is a sequence of steps. Steps of the
// same name form one row together.
type chatStep struct {
	name string // follows the target's name; "" if it is the only row
	load bench.ChatConfig
}

// chatPlan returns the loads of a scenario. A soak of 0 means the scenario's own length.
func chatPlan(scenario string, soak time.Duration) []chatStep {
	switch scenario {
	case "steady":
		return steady(soak)
	case "burst":
		return burst(soak)
	case "churn":
		return churn(soak)
	default:
		return saturation(soak)
	}
}

// scaled returns the steps with every duration and every number of clients
// multiplied, for a quick try.
func scaled(steps []chatStep, times, clients float64) []chatStep {
	for i := range steps {
		load := &steps[i].load
		for _, d := range []*time.Duration{&load.Ramp, &load.Hold, &load.Down, &load.Session, &load.Return} {
			*d = time.Duration(float64(*d) * times)
		}
		load.Clients = max(1, int(float64(load.Clients)*clients))
		load.Checked = max(1, int(float64(load.Checked)*clients))
		if steps[i].name != "" {
			steps[i].name = clientsName(load.Clients)
		}
	}
	return steps
}

func steady(soak time.Duration) []chatStep {
	hold := time.Minute
	if soak > 0 {
		hold = soak
	}
	return []chatStep{{load: bench.ChatConfig{Clients: 100, Hold: hold, Rate: 1, Checked: 100}}}
}

// burst connects everybody at once. A soak repeats it, with a whole number of
// bursts in each fifth, so that its beginning and its end can be compared.
func burst(soak time.Duration) []chatStep {
	const up, stay, down = 10 * time.Second, 5 * time.Second, 5 * time.Second
	cycles, hold := 1, stay
	if soak > 0 {
		cycles = max(5, int(soak/(up+stay+down))/5*5)
		hold = soak/time.Duration(cycles) - up - down
	}
	steps := make([]chatStep, cycles)
	for i := range steps {
		steps[i].load = bench.ChatConfig{
			Clients: 1000, Ramp: up, Hold: hold, Down: down, Greet: true, Session: stay, Return: up, Checked: 1000,
		}
	}
	return steps
}

func churn(soak time.Duration) []chatStep {
	const session = 2 * time.Second
	total := time.Minute
	if soak > 0 {
		total = soak
	}
	return []chatStep{{load: bench.ChatConfig{
		Clients: 200, Ramp: session, Hold: total - session, Session: session, Return: total, Checked: 200,
	}}}
}

// saturation raises the number of clients. A soak uses only the largest number.
func saturation(soak time.Duration) []chatStep {
	const ramp, hold = 10 * time.Second, 20 * time.Second
	load := func(clients int, hold time.Duration) chatStep {
		return chatStep{clientsName(clients), bench.ChatConfig{
			Clients: clients, Ramp: ramp, Hold: hold, Down: ramp, Rate: 5, Checked: max(20, clients/10),
		}}
	}
	if soak > 0 {
		return []chatStep{load(1000, soak-2*ramp)}
	}
	return []chatStep{load(200, hold), load(500, hold), load(1000, hold)}
}

func clientsName(n int) string { return fmt.Sprintf("%d clients", n) }
