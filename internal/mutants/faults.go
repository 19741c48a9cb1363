package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// fault replaces a piece of a file by another text.
type fault struct {
	file     string
	line     int
	from, to int // offsets in bytes
	text     string

	kind     string // condition, bound, dropped, swapped or error
	function string
	was      string
	nth      int // among those of the function with the same kind and text
}

func (f fault) String() string {
	return fmt.Sprintf("%s:%d %s: %s: %s => %s", filepath.Base(f.file), f.line, f.function, f.kind, short(f.was), short(f.text))
}

// id names the fault by its place in the function, not in the file.
func (f fault) id() string { return f.hash("")[:10] }

func (f fault) hash(seed string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{seed, filepath.Base(filepath.Dir(f.file)), f.function, f.kind, f.was, f.text, strconv.Itoa(f.nth)}, "\x00")))
	return hex.EncodeToString(sum[:])
}

func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 60 {
		text = text[:60] + "…"
	}
	return strconv.Quote(text)
}

// choose returns all faults of a package in the order in which a seed takes them: each kind in turn.
func choose(p *listed, seed uint64) []fault {
	key := strconv.FormatUint(seed, 10)
	byKind := make(map[string][]fault)
	for _, name := range p.GoFiles {
		for _, f := range faults(filepath.Join(p.Dir, name)) {
			byKind[f.kind] = append(byKind[f.kind], f)
		}
	}
	var all []fault
	for i := 0; ; i++ {
		found := false
		for _, kind := range []string{"condition", "bound", "dropped", "swapped", "error"} {
			if i == 0 {
				slices.SortFunc(byKind[kind], func(a, b fault) int { return cmp.Compare(a.hash(key), b.hash(key)) })
			}
			if i < len(byKind[kind]) {
				all, found = append(all, byKind[kind][i]), true
			}
		}
		if !found {
			return all
		}
	}
}

// finder collects the faults of a file.
type finder struct {
	fset     *token.FileSet
	file     string
	function string
	seen     map[string]int
	found    []fault
}

func faults(path string) []fault {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return nil
	}
	f := &finder{fset: fset, file: path, seen: make(map[string]int)}
	for _, decl := range file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
			f.function = nameOf(fn)
			ast.Inspect(fn.Body, f.visit)
		}
	}
	return f.found
}

func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	recv := fn.Recv.List[0].Type
	if star, ok := recv.(*ast.StarExpr); ok {
		recv = star.X
	}
	if index, ok := recv.(*ast.IndexExpr); ok {
		recv = index.X
	}
	return fmt.Sprint(recv, ".", fn.Name.Name)
}

func (f *finder) add(kind string, node ast.Node, text string) {
	was := f.source(node)
	key := f.function + kind + was + text
	f.seen[key]++
	pos := f.fset.Position(node.Pos())
	f.found = append(f.found, fault{
		file: f.file, line: pos.Line, from: pos.Offset, to: f.fset.Position(node.End()).Offset, text: text,
		kind: kind, function: f.function, was: was, nth: f.seen[key],
	})
}

func (f *finder) source(node ast.Node) string {
	var text bytes.Buffer
	printer.Fprint(&text, f.fset, node) // into memory: no error
	return text.String()
}

func (f *finder) visit(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.IfStmt:
		f.branch(n)
	case *ast.ForStmt:
		if n.Cond != nil {
			f.operators(n.Cond)
		}
	case *ast.BinaryExpr:
		if one, ok := n.Y.(*ast.BasicLit); ok && one.Kind == token.INT && (n.Op == token.ADD || n.Op == token.SUB) {
			f.add("bound", n, f.source(n.X))
		}
	case *ast.ReturnStmt:
		f.returned(n)
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.statements(n.Body)
	case *ast.CommClause:
		f.statements(n.Body)
	case *ast.CallExpr:
		f.arguments(n)
	}
	return true
}

// branch makes faults of a condition; that an error is ignored is a kind of its own.
func (f *finder) branch(n *ast.IfStmt) {
	if cond := f.source(n.Cond); cond == "err != nil" {
		f.add("error", n.Cond, "err != nil && false")
		return
	}
	f.add("condition", n.Cond, "("+f.source(n.Cond)+") && false")
	f.add("condition", n.Cond, "!("+f.source(n.Cond)+")")
	f.operators(n.Cond)
}

var otherOperator = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND, token.EQL: token.NEQ, token.NEQ: token.EQL,
}

func (f *finder) operators(cond ast.Expr) {
	ast.Inspect(cond, func(node ast.Node) bool {
		if n, ok := node.(*ast.BinaryExpr); ok && otherOperator[n.Op] != 0 {
			kind := "condition"
			if n.Op == token.LSS || n.Op == token.LEQ || n.Op == token.GTR || n.Op == token.GEQ {
				kind = "bound"
			}
			f.add(kind, n, f.source(n.X)+" "+otherOperator[n.Op].String()+" "+f.source(n.Y))
		}
		return true
	})
}

// returned makes a function hide an error, or answer the opposite.
func (f *finder) returned(n *ast.ReturnStmt) {
	if len(n.Results) == 0 {
		return
	}
	switch last := n.Results[len(n.Results)-1]; f.source(last) {
	case "err":
		f.add("error", last, "nil")
	case "true":
		f.add("condition", last, "false")
	case "false":
		f.add("condition", last, "true")
	}
}

// statements drops one statement. Lines for a log and for people are not dropped: no test is about those.
func (f *finder) statements(list []ast.Stmt) {
	for _, stmt := range list {
		switch s := stmt.(type) {
		case *ast.ExprStmt:
			if text := strings.ToLower(f.source(s)); strings.Contains(text, "log") || strings.Contains(text, "print") || strings.HasPrefix(text, "panic") {
				continue
			}
			f.add("dropped", s, "")
		case *ast.IncDecStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt:
			f.add("dropped", s, "")
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				f.add("dropped", s, "")
			}
		}
	}
}

// anyOrder matches functions whose arguments have no order, or only one for the eye.
var anyOrder = regexp.MustCompile(`(?i)^(max|min)$|log|errorf$|errors\.Join$`)

// arguments swaps two neighbours. The compiler refuses most pairs of different types.
func (f *finder) arguments(n *ast.CallExpr) {
	if anyOrder.MatchString(f.source(n.Fun)) {
		return
	}
	for i := 1; i < len(n.Args); i++ {
		a, b := f.source(n.Args[i-1]), f.source(n.Args[i])
		if a == b || strings.Contains(a+b, "func(") {
			continue
		}
		pair := *n
		pair.Args = slices.Clone(n.Args)
		pair.Args[i-1], pair.Args[i] = n.Args[i], n.Args[i-1]
		if n.Ellipsis != 0 && i == len(n.Args)-1 {
			continue
		}
		f.add("swapped", n, f.source(&pair))
	}
}
