package repository_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// podFields are all fields of a pod's spec. One that has no effect is followed by the reason.
const podFields = "test/repository/testdata/podfields.txt"

// Each field of a pod's spec is used by the code that runs pods, or has a reason why not: a new version of the API fails
// here until somebody has decided about its fields. A field counts as used by its name.
func TestFieldsOfPods(t *testing.T) {
	used := usedFields(t)
	decided := map[string]string{}
	data, err := os.ReadFile(podFields)
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		name, reason, ok := strings.Cut(strings.TrimSpace(line), " ")
		assert.NotContains(t, decided, name, "twice")
		if ok {
			assert.NotEmpty(t, reason, name)
		}
		decided[name] = reason
	}
	fields := map[string]string{} // of a type, to its name in Go
	collectFields(reflect.TypeFor[v1.PodSpec](), fields)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		reason, ok := decided[name]
		assert.True(t, ok, "%s is new: obey it, refuse it, or say in %s why it has no effect", name, podFields)
		assert.True(t, used[fields[name]] || reason != "", "%s is used nowhere, and %s has no reason", name, podFields)
	}
	for name := range decided {
		assert.Contains(t, fields, name, "there is no such field")
	}
}

// collectFields adds the fields of the type and of those below it, as Type.field.
func collectFields(t reflect.Type, into map[string]string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		collectFields(t.Elem(), into)
	case reflect.Struct:
		if !strings.HasPrefix(t.PkgPath(), "k8s.io/api/") {
			return
		}
		for f := range t.Fields() {
			if f.Anonymous {
				collectFields(f.Type, into)
				continue
			}
			json, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			name := t.Name() + "." + json
			if _, ok := into[name]; !ok {
				into[name] = f.Name
				collectFields(f.Type, into)
			}
		}
	}
}

// usedFields returns the names of the selectors in the code that runs pods: not in tests and examples, nor in what
// only validates and defaults.
func usedFields(t *testing.T) map[string]bool {
	used := map[string]bool{}
	for _, dir := range []string{"cluster", "gc", "kubelet", "node", "podworkers", "prober", "runtime", "status", "syncloop"} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					used[s.Sel.Name] = true
				}
				return true
			})
			return nil
		}))
	}
	return used
}
