// Sleeps reports each time.Sleep in a test that is not in a bubble of testing/synctest, and exits with 1 if there is
// one: a test waits for a signal, or with testkit.Eventually. A sleep that is the pace of a load has a comment on its
// line that begins with "pace:", one in a helper that only bubbles call, a comment that begins with "synctest:". A
// function that gives a test to synctest.Test makes bubbles, too. No linter that we found knows them.
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
	fset, files := token.NewFileSet(), []*ast.File(nil)
	for _, path := range os.Args[1:] {
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			fmt.Fprintln(os.Stderr, "sleeps:", err)
			os.Exit(1)
		}
		files = append(files, file)
	}
	bubbles := map[string]bool{"synctest.Test": true}
	for _, file := range files {
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && makesBubble(fn) {
				bubbles[fn.Name.Name] = true
			}
		}
	}
	found := 0
	for _, file := range files {
		sleeps := inFile(fset, file, bubbles)
		for _, pos := range sleeps {
			fmt.Printf("%s: a test sleeps: wait for a signal, or with testkit.Eventually; if it is the pace of a load, end the line with // pace: and the reason\n", pos)
		}
		found += len(sleeps)
	}
	if found > 0 {
		os.Exit(1)
	}
}

// makesBubble reports whether a function gives the test that it is given to synctest.Test.
func makesBubble(fn *ast.FuncDecl) (makes bool) {
	ast.Inspect(fn, func(node ast.Node) bool {
		if called(node) == "synctest.Test" {
			_, given := node.(*ast.CallExpr).Args[1].(*ast.Ident)
			makes = makes || given
		}
		return true
	})
	return makes
}

func inFile(fset *token.FileSet, file *ast.File, bubbles map[string]bool) (sleeps []token.Position) {
	allowed := make(map[int]bool) // lines
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if text := strings.TrimLeft(comment.Text, "/ "); strings.HasPrefix(text, "pace:") || strings.HasPrefix(text, "synctest:") {
				allowed[fset.Position(comment.Pos()).Line] = true
			}
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		name := called(node)
		if bubbles[name] {
			return false
		}
		if name == "time.Sleep" {
			if pos := fset.Position(node.Pos()); !allowed[pos.Line] {
				sleeps = append(sleeps, pos)
			}
		}
		return true
	})
	return sleeps
}

// called returns the name of the function that a call calls: name, or package.name.
func called(node ast.Node) string {
	call, ok := node.(*ast.CallExpr)
	if !ok {
		return ""
	}
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		if pkg, ok := fun.X.(*ast.Ident); ok {
			return pkg.Name + "." + fun.Sel.Name
		}
	}
	return ""
}
