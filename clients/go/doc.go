// Package tidewire is the client of Tidewire, durable real-time messaging on PostgreSQL: streams, queues, rooms and events over one WebSocket.
//
// Open returns a Client, which connects when it is first used, and connects again whenever the connection is lost. What belongs to it has the
// names of the server: Client.Stream and StreamOf, Client.Queue and QueueOf, Client.Room, Client.Events.
//
//	c, err := tidewire.Open("wss://app.example.com/ws", tidewire.Options{APIKey: os.Getenv("TIDEWIRE_KEY")})
//	defer c.Close()
//	orders := tidewire.StreamOf[Order](c, "orders")
//	published, err := orders.Publish(ctx, Order{ID: 7}, tidewire.Key("customer-3"))
//	for m, err := range orders.Messages(ctx, tidewire.After(last)) {
//
// # What it promises
//
//   - Publish, Enqueue, Append, and Chat in a stored room return when the database has committed. They are sent again after a reconnect, and
//     stored once.
//   - A subscription goes on after the last message that the program has taken. Nothing is missing, and nothing comes twice.
//   - At most 256 messages of a subscription wait in the library; a slow program stops the server, and nothing else.
//   - A handler of Work has its message alone while its context lasts. The message leaves the queue when it returns nil.
//   - No function of the program runs on the goroutine that reads.
//
// # Errors
//
// errors.As finds an *Error in each error that the server or the library has found, and errors.Is compares it with ErrNotFound and the others. After
// ErrOutcomeUnknown the program has to look whether the request has had an effect; after all others it has had none.
//
// # OpenTelemetry
//
// The package depends on nothing of OpenTelemetry. These lines connect it:
//
//	type propagator struct{ propagation.TextMapPropagator }
//
//	func (p propagator) Inject(ctx context.Context, headers map[string]string) {
//		p.TextMapPropagator.Inject(ctx, propagation.MapCarrier(headers))
//	}
//
//	func (p propagator) Extract(ctx context.Context, headers map[string]string) context.Context {
//		return p.TextMapPropagator.Extract(ctx, propagation.MapCarrier(headers))
//	}
//
//	tidewire.Open(url, tidewire.Options{Propagator: propagator{otel.GetTextMapPropagator()}})
//
// Publish and Enqueue then put the trace of their ctx into the headers. The ctx of a handler has the trace of its message, and Client.Trace
// returns a context with that of any other message.
package tidewire
