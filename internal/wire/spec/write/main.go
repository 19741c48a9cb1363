// The command write writes the pages of docs/reference that internal/wire/spec describes: `make docs`.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tidewire/tidewire/internal/wire/spec"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: write DIRECTORY")
		os.Exit(2)
	}
	for name, page := range map[string][]byte{"messages.md": spec.MessagesPage(), "http.md": spec.HTTPPage()} {
		if err := os.WriteFile(filepath.Join(os.Args[1], name), page, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
