package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// listedPackage is a package as go list prints it.
type listedPackage struct {
	ImportPath, Dir string
	GoFiles         []string
	DepOnly         bool
	ImportMap       map[string]string
}

// The kinds of names. A reason can be one of a status or a condition.
const (
	kindEvent     = "event"
	kindReason    = "reason"
	kindCondition = "condition"
	kindKey       = "key"
	kindMetric    = "metric"
	kindWord      = "word" // each constant in CamelCase, whatever it is for
)

var (
	word = regexp.MustCompile(`^[A-Z]\w*[a-z]\w*$`)
	// key matches labels, annotations, taints, finalizers and names of volume plugins; version matches the version
	// of an API, which is none of them.
	key     = regexp.MustCompile(`^[a-z0-9.-]*(kubernetes|k8s)\.io/[\w./-]+$`)
	version = regexp.MustCompile(`/v\d+((alpha|beta)\d+)?$`)
	// reasonName matches the names of constants and variables that are reasons: kubelet has the reasons of containers
	// as errors.
	reasonName = regexp.MustCompile(`[rR]eason|^Err|^\w+Error$`)
)

// names reads a directory and patterns of packages, as arguments, and prints the names that these packages write for
// users, as they are in the sources, with their kind and the place where they are first:
//
//	reference names DIR [-modfile=FILE] PATTERN...
//
// The values of constants count, not their names. A name that is put together at run time is not found.
func names(args []string) (any, error) {
	if len(args) < 2 {
		return nil, errors.New("give a directory and patterns of packages")
	}
	cmd := exec.Command("go", append([]string{"list", "-deps", "-e", "-json=ImportPath,Dir,GoFiles,DepOnly,ImportMap"},
		args[1:]...)...)
	cmd.Dir, cmd.Stderr = args[0], os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	l := &loader{listed: map[string]listedPackage{}, fset: token.NewFileSet(), loaded: map[string]*types.Package{},
		found: map[string]map[string]string{}}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		l.listed[p.ImportPath] = p
	}
	for path, p := range l.listed {
		if !p.DepOnly {
			if _, err := l.load(path); err != nil {
				return nil, err
			}
		}
	}
	return l.found, nil
}

// loader type-checks packages from their sources, without the bodies of functions in dependencies.
type loader struct {
	listed map[string]listedPackage
	fset   *token.FileSet
	loaded map[string]*types.Package
	found  map[string]map[string]string // by kind and value
}

type importer func(path string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }

func (l *loader) load(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if p := l.loaded[path]; p != nil {
		return p, nil
	}
	listed, ok := l.listed[path]
	if !ok {
		return nil, fmt.Errorf("package %s is not listed", path)
	}
	var files []*ast.File
	for _, name := range listed.GoFiles {
		f, err := parser.ParseFile(l.fset, filepath.Join(listed.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	config := types.Config{
		IgnoreFuncBodies: listed.DepOnly, FakeImportC: true,
		Error: func(error) {}, // a constant that is not known for one is not found
		Importer: importer(func(path string) (*types.Package, error) {
			if mapped, ok := listed.ImportMap[path]; ok {
				path = mapped
			}
			return l.load(path)
		}),
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{},
		Uses: map[*ast.Ident]types.Object{}}
	p, _ := config.Check(path, l.fset, files, info)
	l.loaded[path] = p
	if !listed.DepOnly {
		for _, f := range files {
			ast.Inspect(f, func(n ast.Node) bool {
				l.node(info, path, n)
				return true
			})
		}
	}
	return p, nil
}

func (l *loader) add(kind, value string, at ast.Node) {
	if l.found[kind] == nil {
		l.found[kind] = map[string]string{}
	}
	if place := l.fset.Position(at.Pos()).String(); l.found[kind][value] == "" || place < l.found[kind][value] {
		l.found[kind][value] = place
	}
}

// text returns the value of a constant string.
func text(info *types.Info, e ast.Expr) (string, bool) {
	if v := info.Types[e].Value; v != nil && v.Kind() == constant.String {
		return constant.StringVal(v), true
	}
	return "", false
}

// addWord adds a constant that is one word in CamelCase.
func (l *loader) addWord(info *types.Info, kind string, e ast.Expr) {
	if s, ok := text(info, e); ok && word.MatchString(s) {
		l.add(kind, s, e)
	}
}

// node adds the names in one node of the syntax.
func (l *loader) node(info *types.Info, path string, n ast.Node) {
	if e, ok := n.(ast.Expr); ok {
		s, ok := text(info, e)
		if ok && key.MatchString(s) && !version.MatchString(s) {
			l.add(kindKey, s, e)
		}
		if typ := typeName(info, e); ok && (typ == "PodConditionType" || typ == "NodeConditionType") {
			l.add(kindCondition, s, e)
		}
		if ok && word.MatchString(s) {
			l.add(kindWord, s, e)
		}
	}
	switch n := n.(type) {
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if c, ok := info.Defs[name].(*types.Const); ok && c.Val().Kind() == constant.String {
				s := constant.StringVal(c.Val())
				switch {
				case !word.MatchString(s):
				case strings.HasSuffix(path, "/pkg/kubelet/events"):
					l.add(kindEvent, s, n)
				case reasonName.MatchString(name.Name), strings.HasSuffix(path, "/framework/plugins/names"):
					l.add(kindReason, s, n)
				}
			} else if i < len(n.Values) && reasonName.MatchString(name.Name) { // errors.New("CrashLoopBackOff")
				if call, ok := n.Values[i].(*ast.CallExpr); ok && len(call.Args) == 1 {
					l.addWord(info, kindReason, call.Args[0])
				}
			}
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			if field, ok := left.(*ast.SelectorExpr); ok && typeName(info, field.X) == "Record" {
				continue
			}
			if len(n.Rhs) == len(n.Lhs) && reasonName.MatchString(name(left)) {
				l.addWord(info, kindReason, n.Rhs[i])
			}
		}
	case *ast.CallExpr:
		l.call(info, n)
	case *ast.CompositeLit:
		l.composite(info, n)
	}
}

// typeName returns the name of the type of an expression, or "".
func typeName(info *types.Info, e ast.Expr) string {
	if named, ok := types.Unalias(info.TypeOf(e)).(*types.Named); ok {
		return named.Obj().Name()
	}
	return ""
}

// name returns the name of a variable or of a field.
func name(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// call adds the reason of an event, which follows its type, the reason of a function with such a parameter, and the
// name of a metric.
func (l *loader) call(info *types.Info, n *ast.CallExpr) {
	signature, _ := info.Types[n.Fun].Type.(*types.Signature)
	event := -1
	for i, arg := range n.Args {
		if typ, _ := text(info, arg); (typ == "Normal" || typ == "Warning") && i+1 < len(n.Args) {
			event = i + 1
			l.addWord(info, kindEvent, n.Args[event])
		} else if i != event && signature != nil && i < signature.Params().Len() &&
			reasonName.MatchString(signature.Params().At(i).Name()) {
			l.addWord(info, kindReason, arg)
		}
	}
	if name(n.Fun) != "NewDesc" || len(n.Args) == 0 {
		return
	}
	if s, ok := text(info, n.Args[0]); ok {
		l.add(kindMetric, s, n)
	} else if full, ok := n.Args[0].(*ast.CallExpr); ok && len(full.Args) == 3 {
		var parts []string
		for _, part := range full.Args {
			s, _ := text(info, part)
			parts = append(parts, s)
		}
		l.metric(n, parts...)
	}
}

// composite adds the reason of an event, a status or a condition, and the name of a metric.
func (l *loader) composite(info *types.Info, n *ast.CompositeLit) {
	fields := map[string]ast.Expr{}
	for _, e := range n.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			fields[name(kv.Key)] = kv.Value
		}
	}
	switch typ := typeName(info, n); {
	case fields["Reason"] != nil && typ == "Event":
		l.addWord(info, kindEvent, fields["Reason"])
	case fields["Reason"] != nil && typ != "Record": // of a history, which kubelet does not have
		l.addWord(info, kindReason, fields["Reason"])
	case strings.HasSuffix(typ, "Opts") && fields["Name"] != nil:
		parts := make([]string, 3)
		for i, field := range []string{"Namespace", "Subsystem", "Name"} {
			if fields[field] != nil {
				parts[i], _ = text(info, fields[field])
			}
		}
		l.metric(n, parts...)
	}
}

// metric adds the metric whose name has the parts. The last one may be unknown.
func (l *loader) metric(at ast.Node, parts ...string) {
	if parts[len(parts)-1] != "" {
		l.add(kindMetric, strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "_"), at)
	}
}
