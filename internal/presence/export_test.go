package presence

import "context"

// BeatNow beats once. Nothing else may beat meanwhile.
func BeatNow(r *Recorder) { r.beat(context.Background()) }
