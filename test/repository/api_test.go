package repository_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var updateAPI = flag.Bool("update-api", false, "write the exported API to testdata/api")

// TestAPI keeps the exported API: testdata/api has the exported declarations of each
// package on Linux, without comments. A change of them is a decision, and is written in
// CHANGELOG.md. To accept one:
//
//	go test -run TestAPI ./test/repository -update-api
func TestAPI(t *testing.T) {
	const dir = "test/repository/testdata/api"
	if *updateAPI {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	var files []string
	for _, p := range publicPackages(t) {
		name := strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/"), "/", ".")
		if name == "" {
			name = "kubeletkit"
		}
		file := filepath.Join(dir, name+".txt")
		files = append(files, file)
		api := exported(t, p)
		if *updateAPI {
			require.NoError(t, os.WriteFile(file, []byte(api), 0o644))
			continue
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err, "a new package? accept it as the comment of this test says")
		assert.Equal(t, string(want), api, "%s: the exported API has changed; if that is intended, write it in "+
			"CHANGELOG.md and accept it as the comment of this test says", p.ImportPath)
	}
	kept, err := filepath.Glob(dir + "/*.txt")
	require.NoError(t, err)
	slices.Sort(files)
	assert.Equal(t, files, kept, "a package is gone")
}

type publicPackage struct {
	ImportPath, Name, Dir string
	GoFiles               []string
}

// publicPackages lists the packages that others can import.
func publicPackages(t *testing.T) (list []publicPackage) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Name,Dir,GoFiles", "./...")
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := cmd.Output()
	require.NoError(t, err)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p publicPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		if p.Name != "main" && !slices.Contains(strings.Split(p.ImportPath, "/"), "internal") &&
			!strings.HasPrefix(p.ImportPath, module+"/examples/") {
			list = append(list, p)
		}
	}
}

// exported returns the exported declarations of a package in the order of their names.
func exported(t *testing.T, p publicPackage) string {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, f)
	}
	d, err := doc.NewFromFiles(fset, files, p.ImportPath)
	require.NoError(t, err)

	var out strings.Builder
	fmt.Fprintf(&out, "package %s // import %q\n", p.Name, p.ImportPath)
	show := func(decl ast.Decl) {
		var text strings.Builder
		require.NoError(t, (&printer.Config{Mode: printer.TabIndent | printer.UseSpaces, Tabwidth: 4}).Fprint(&text,
			fset, decl))
		out.WriteByte('\n')
		for line := range strings.Lines(text.String() + "\n") {
			if strings.TrimSpace(line) != "" { // a blank line is where a comment was
				out.WriteString(line)
			}
		}
	}
	values := func(list []*doc.Value) {
		for _, v := range list {
			show(v.Decl)
		}
	}
	funcs := func(list []*doc.Func) {
		for _, f := range list {
			f.Decl.Body, f.Decl.Doc = nil, nil
			show(f.Decl)
		}
	}
	values(d.Consts)
	values(d.Vars)
	funcs(d.Funcs)
	for _, typ := range d.Types {
		show(typ.Decl)
		values(typ.Consts)
		values(typ.Vars)
		funcs(typ.Funcs)
		funcs(typ.Methods)
	}
	return out.String()
}
