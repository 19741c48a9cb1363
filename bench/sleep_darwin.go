package bench

import "time"

func sleepPrecisely(d time.Duration) { time.Sleep(d) }
