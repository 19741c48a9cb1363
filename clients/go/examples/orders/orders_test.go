package orders_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/clients/go"
	"github.com/tidewire/tidewire/clients/go/examples/orders"
	"github.com/tidewire/tidewire/clients/go/examples/orders/orderstest"
)

func TestOverTheWire(t *testing.T) {
	url := os.Getenv("TIDEWIRE_URL")
	if url == "" {
		t.Skip("TIDEWIRE_URL is not set: start `tidewire serve`, and set it to ws://localhost:8080/ws")
	}
	name := fmt.Sprintf("orders-%d", time.Now().UnixNano())
	base := "http" + strings.TrimSuffix(strings.TrimPrefix(url, "ws"), "/ws")
	for _, path := range []string{"/v1/streams/", "/v1/queues/"} {
		at := name
		if path == "/v1/queues/" {
			at = "mails-" + name
		}
		response, err := http.Post(base+path+at, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode >= 300 {
			t.Fatalf("%s%s: %s", path, at, response.Status)
		}
	}
	c, err := tidewire.Open(url, tidewire.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := orders.Over(c)
	s.Orders, s.Mails = tidewire.StreamOf[orders.Placed](c, name), tidewire.QueueOf[orders.Mail](c, "mails-"+name)
	orderstest.Run(t, s, name)
}
