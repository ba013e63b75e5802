package repository_test

import (
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGlossaryHasRealNames asserts that the right column of the table of kubelet's names has declarations of this
// repository: each of the names in "`Name`, `Type.Member` in [file](link)" is in the file. A name may have no other
// form, and each name of kubelet has one row.
func TestGlossaryHasRealNames(t *testing.T) {
	const doc = "docs/contribute/glossary.md"
	_, section, found := strings.Cut(documents(t)[doc], "\n## Names of kubelet\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	rows := regexp.MustCompile("(?m)^\\| (`.*) \\| (.*) \\|$").FindAllStringSubmatch(section, -1)
	require.Greater(t, len(rows), 70)
	require.Equal(t, strings.Count(section, "\n|"), len(rows)+2, "a row that is not `name` | text")

	quoted := regexp.MustCompile("`([^`]+)`")
	declared := regexp.MustCompile("((?:`[^`]+`(?:, | and )?)+) in \\[([^]]+)\\]\\(([^)]+)\\)")
	inFiles, seen := map[string]map[string]bool{}, map[string]bool{}
	for _, row := range rows {
		for _, m := range quoted.FindAllStringSubmatch(row[1], -1) {
			assert.Falsef(t, seen[m[1]], "%s: %s has two rows", doc, m[1])
			seen[m[1]] = true
		}
		matches := declared.FindAllStringSubmatch(row[2], -1)
		assert.NotEmptyf(t, matches, "%s: the row of %s names no declaration", doc, row[1])
		assert.NotRegexpf(t, "[`\\[]", declared.ReplaceAllString(row[2], ""),
			"%s: the row of %s has a name without a file, or a file without a name", doc, row[1])
		for _, m := range matches {
			file := path.Join(path.Dir(doc), m[3])
			assert.Equalf(t, file, m[2], "%s: the row of %s: the text of a link is not its file", doc, row[1])
			names := inFiles[file]
			if names == nil {
				names = map[string]bool{}
				inFiles[file] = names
				parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
				if !assert.NoErrorf(t, err, "%s: the row of %s", doc, row[1]) {
					continue
				}
				addNames(names, parsed)
			}
			for _, n := range quoted.FindAllStringSubmatch(m[1], -1) {
				assert.Truef(t, names[n[1]], "%s: the row of %s: %s is not in %s", doc, row[1], n[1], file)
			}
		}
	}
}
