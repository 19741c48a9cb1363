// Sleeps reports each time.Sleep in a test that is not in a bubble of testing/synctest, and exits with 1 if there is
// one: a test waits for a signal, or with testkit.Eventually. A sleep that is the pace of a load has a comment on its
// line that begins with "pace:", one in a helper that only bubbles call, a comment that begins with "synctest:". No
// linter that we found knows bubbles.
//
//	go run ./internal/testkit/sleeps stream/*_test.go
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
)

func main() {
	found := 0
	for _, path := range os.Args[1:] {
		sleeps, err := inFile(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, "sleeps:", err)
			os.Exit(1)
		}
		for _, pos := range sleeps {
			fmt.Printf("%s: a test sleeps: wait for a signal, with testkit.Eventually, or write why (pace: …)\n", pos)
		}
		found += len(sleeps)
	}
	if found > 0 {
		os.Exit(1)
	}
}

func inFile(path string) (sleeps []token.Position, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	allowed := make(map[int]bool) // lines
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if text := strings.TrimLeft(comment.Text, "/ "); strings.HasPrefix(text, "pace:") || strings.HasPrefix(text, "synctest:") {
				allowed[fset.Position(comment.Pos()).Line] = true
			}
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch selected(node) {
		case "synctest.Test":
			return false
		case "time.Sleep":
			if pos := fset.Position(node.Pos()); !allowed[pos.Line] {
				sleeps = append(sleeps, pos)
			}
		}
		return true
	})
	return sleeps, nil
}

// selected returns the function that a call selects from a package.
func selected(node ast.Node) string {
	call, ok := node.(*ast.CallExpr)
	if !ok {
		return ""
	}
	fun, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	pkg, ok := fun.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return pkg.Name + "." + fun.Sel.Name
}
