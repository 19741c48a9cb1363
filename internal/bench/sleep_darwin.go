package bench

import "time"

type alarm struct{}

func newAlarm() alarm               { return alarm{} }
func (alarm) sleep(d time.Duration) { time.Sleep(d) }
func (alarm) close()                {}
