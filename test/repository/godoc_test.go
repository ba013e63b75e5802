package repository_test

import (
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGodoc asserts that the links of comments have targets, and that the parameters of exported functions have types
// that godoc shows.
func TestGodoc(t *testing.T) {
	link := regexp.MustCompile(`\[\*?(?:[a-z]\w*\.)?[A-Z]\w*(?:\.[A-Z]\w*)?\]`)
	for _, p := range publicPackages(t) {
		fset := token.NewFileSet()
		var files []*ast.File
		var comments []*ast.CommentGroup
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
			require.NoError(t, err)
			files, comments = append(files, f), append(comments, f.Comments...)
		}
		own := unexportedTypes(files)
		for _, f := range files {
			for _, decl := range f.Decls {
				if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.IsExported() {
					for _, param := range fn.Type.Params.List {
						ast.Inspect(param.Type, func(n ast.Node) bool {
							if _, ok := n.(*ast.FuncType); ok {
								return false // its parameters have names
							}
							if name, ok := n.(*ast.Ident); ok && own[name.Name] {
								t.Errorf("%v: a parameter has the unexported type %s", fset.Position(name.Pos()),
									name.Name)
							}
							return true
						})
					}
				}
			}
		}
		pkg, err := doc.NewFromFiles(fset, files, p.ImportPath)
		require.NoError(t, err)
		links := pkg.Parser()
		for _, c := range comments {
			for _, text := range plainTexts(links.Parse(c.Text()).Content) {
				for _, dead := range link.FindAllString(text, -1) {
					t.Errorf("%v: the link %s has no target; a package of it is to be imported in one of the files",
						fset.Position(c.Pos()), dead)
				}
			}
		}
	}
}

// unexportedTypes returns the names of the package's types that are not exported.
func unexportedTypes(files []*ast.File) map[string]bool {
	names := map[string]bool{}
	for _, f := range files {
		for _, decl := range f.Decls {
			if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.TYPE {
				for _, spec := range d.Specs {
					if name := spec.(*ast.TypeSpec).Name; !name.IsExported() {
						names[name.Name] = true
					}
				}
			}
		}
	}
	return names
}

// plainTexts returns the text of a comment that is neither code nor a link.
func plainTexts(blocks []comment.Block) (texts []string) {
	for _, block := range blocks {
		switch b := block.(type) {
		case *comment.Paragraph:
			for _, text := range b.Text {
				if plain, ok := text.(comment.Plain); ok {
					texts = append(texts, string(plain))
				}
			}
		case *comment.List:
			for _, item := range b.Items {
				texts = append(texts, plainTexts(item.Content)...)
			}
		}
	}
	return texts
}
