package gateway

import "context"

// asking is a connection or an HTTP request: package limits bounds how many of a user ask a store at a time.
type asking interface {
	Query(ctx context.Context) (end func(), err error)
}

// query asks a store when it is the turn of its user.
func query[T any](ctx context.Context, by asking, ask func() (T, error)) (answer T, err error) {
	end, err := by.Query(ctx)
	if err != nil {
		return answer, err
	}
	defer end()
	return ask()
}
