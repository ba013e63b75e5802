package repository_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit"
)

// TestDocsNameIdentifiers asserts that the identifiers that documents name are exported: "pkg.Name" and
// "pkg.Type.Member" of the packages of this module, and the fields and methods of [kubeletkit.Options] and
// [kubeletkit.Agent].
func TestDocsNameIdentifiers(t *testing.T) {
	exported := exportedNames(t)
	qualified := regexp.MustCompile("`[^`\n]*?\\*?\\b([a-z][a-z0-9]*)\\.([A-Z]\\w*)(?:\\.([A-Z]\\w*))?")
	own := regexp.MustCompile("`(Options|Agent)((?:\\.[A-Z]\\w*)+)")
	for doc, text := range present(t) {
		text = withoutCode(text)
		for _, m := range qualified.FindAllStringSubmatch(text, -1) {
			names := exported[m[1]]
			if names == nil || m[1] == "http" || m[1] == "v1" {
				continue // of another module
			}
			assert.Truef(t, names[m[2]], "%s: %s.%s does not exist", doc, m[1], m[2])
			if m[3] != "" && names[m[2]] {
				assert.Truef(t, names[m[2]+"."+m[3]], "%s: %s.%s.%s does not exist", doc, m[1], m[2], m[3])
			}
		}
		for _, m := range own.FindAllStringSubmatch(text, -1) {
			typ := reflect.TypeFor[kubeletkit.Options]()
			if m[1] == "Agent" {
				_, ok := reflect.TypeFor[*kubeletkit.Agent]().MethodByName(m[2][1:])
				assert.Truef(t, ok, "%s: %s%s does not exist", doc, m[1], m[2])
				continue
			}
			for name := range strings.SplitSeq(m[2][1:], ".") {
				if typ.Kind() == reflect.Pointer {
					typ = typ.Elem()
				}
				var field reflect.StructField
				ok := typ.Kind() == reflect.Struct
				if ok {
					field, ok = typ.FieldByName(name)
				}
				if !assert.Truef(t, ok, "%s: %s%s does not exist", doc, m[1], m[2]) {
					break
				}
				typ = field.Type
			}
		}
	}
}

// exportedNames returns the exported identifiers of the packages of the module, by the last element of the import path:
// names, and types with their fields and methods.
func exportedNames(t *testing.T) map[string]map[string]bool {
	t.Helper()
	exported := map[string]map[string]bool{}
	require.NoError(t, filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "internal" || d.Name() == "examples" ||
			d.Name() == "test"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			return err
		}
		pkg := path.Base(filepath.ToSlash(filepath.Dir(file)))
		if pkg == "." {
			pkg = "kubeletkit"
		}
		if exported[pkg] == nil {
			exported[pkg] = map[string]bool{}
		}
		addNames(exported[pkg], parsed)
		return nil
	}))
	return exported
}

func addNames(names map[string]bool, file *ast.File) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d.Recv.List[0].Type) + "." + name
			}
			names[name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, n := range s.Names {
						names[n.Name] = true
					}
				case *ast.TypeSpec:
					names[s.Name.Name] = true
					for _, field := range members(s.Type) {
						for _, n := range field.Names {
							names[s.Name.Name+"."+n.Name] = true
						}
					}
				}
			}
		}
	}
}

// receiver returns the name of the type of a receiver.
func receiver(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// members returns the fields or methods of a type.
func members(expr ast.Expr) []*ast.Field {
	switch e := expr.(type) {
	case *ast.StructType:
		return e.Fields.List
	case *ast.InterfaceType:
		return e.Methods.List
	}
	return nil
}
