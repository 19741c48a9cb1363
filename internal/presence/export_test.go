package presence

import "context"

// BeatNow beats once.
func BeatNow(r *Recorder) { r.beat(context.Background()) }

// Unwritten returns a Recorder that writes nothing.
func Unwritten(maxWaiting int) *Recorder {
	r, _ := newRecorder(maxWaiting)
	return r
}

// Discard encodes what the Recorder has to write, as fast as it comes, and drops it, until its result is called.
func Discard(r *Recorder) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-r.wake:
			case <-stop:
				return
			}
			w := r.take()
			for i := range w.events {
				w.events[i].encode("n")
			}
			r.wrote(w)
		}
	}()
	return func() { close(stop); <-done }
}

// TakePicture takes everything that is there, and writes nothing.
func TakePicture(r *Recorder) {
	r.tellAnew()
	r.wrote(r.take())
}
