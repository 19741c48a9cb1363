// Command tidewire is durable real-time messaging on PostgreSQL, and the
// workbench that measures it.
package main

import (
	"os"

	"github.com/tidewire/tidewire/internal/cli"
)

func main() { os.Exit(cli.Main()) }
