package cli_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestServe_Console: the server says where its console is, and it is there; a server of one endpoint has none.
func TestServe_Console(t *testing.T) {
	t.Parallel()
	all := serve(t, "--database-url", migrated(t).URL)
	_, port, _ := strings.Cut(all.addr, ":")
	all.await(t, "console at http://localhost:"+port+"/console/\n")
	if status, page := request(t, "GET", all.addr, "/console/streams/orders", ""); status != http.StatusOK || !strings.Contains(page, "<title>Tidewire") {
		t.Errorf("%d %s", status, page)
	}
	echo := serve(t, "--only", "echo")
	if status, _ := request(t, "GET", echo.addr, "/console/", ""); status != http.StatusNotFound {
		t.Errorf("of one endpoint: %d", status)
	}
	if strings.Contains(echo.log(), "console at") {
		t.Errorf("of one endpoint: %s", echo.log())
	}
}
