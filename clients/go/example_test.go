package tidewire_test

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"

	"github.com/tidewire/tidewire/clients/go"
)

type Order struct {
	ID    int `json:"id"`
	Total int `json:"total"`
}

func ExampleOpen() {
	c, err := tidewire.Open("wss://app.example.com/ws", tidewire.Options{APIKey: os.Getenv("TIDEWIRE_KEY")})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
}

func ExampleStream_Publish() {
	ctx, c := context.Background(), open()
	defer c.Close()
	orders := tidewire.StreamOf[Order](c, "orders")
	published, err := orders.Publish(ctx, Order{ID: 7, Total: 42}, tidewire.Key("customer-3"))
	switch {
	case errors.Is(err, tidewire.ErrOutcomeUnknown):
		log.Print("look whether it is there")
	case err != nil:
		log.Print(err)
	default:
		log.Print("stored at ", published.Position)
	}
}

func ExampleStream_Messages() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c := open()
	defer c.Close()
	for m, err := range tidewire.StreamOf[Order](c, "orders").Messages(ctx, tidewire.FromStart()) {
		if err != nil {
			log.Print(err)
			return
		}
		log.Print(m.Position, m.Value)
	}
}

func ExampleQueue_Work() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c := open()
	defer c.Close()
	err := tidewire.QueueOf[Order](c, "invoices").Work(ctx, func(ctx context.Context, job *tidewire.Job[Order]) error {
		log.Print("an invoice for order ", job.Value.ID)
		return nil
	}, tidewire.Concurrency(4))
	if err != nil {
		log.Print(err)
	}
}

func open() *tidewire.Client {
	c, err := tidewire.Open("ws://localhost:8080/ws", tidewire.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// A server sends a chat to all members but its sender: so this has two clients.
func ExampleRoom() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ann, bob := open(), open()
	defer ann.Close()
	defer bob.Close()
	here, err := ann.Room("lobby").Join(ctx, tidewire.User("ann"), tidewire.WithPresence())
	if err != nil {
		log.Print(err)
		return
	}
	there, err := bob.Room("lobby").Join(ctx, tidewire.User("bob"))
	if err != nil {
		log.Print(err)
		return
	}
	if _, err := there.Chat(ctx, "hello"); err != nil {
		log.Print(err)
	}
	for event, err := range here.Events(ctx) {
		if err != nil {
			log.Print(err)
			return
		}
		if chat, ok := event.(*tidewire.Chat); ok {
			log.Print(chat.User, " says ", chat.Text) // bob says hello
			return
		}
	}
}
