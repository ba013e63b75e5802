package repository_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// documents returns the text of each document, by its path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	read := func(path string) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		texts[path] = string(text)
	}
	for _, path := range []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "MAINTAINERS.md", "SECURITY.md",
		"SUPPORT.md", "release/README.md"} {
		read(path)
	}
	require.NoError(t, filepath.WalkDir("docs", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			read(path)
		}
		return err
	}))
	return texts
}

// present returns the documents that describe the present state: all but the changelog.
func present(t *testing.T) map[string]string {
	t.Helper()
	texts := documents(t)
	delete(texts, "CHANGELOG.md")
	return texts
}

// TestLinksOfDocuments asserts that each relative link leads to a file or directory and,
// if it has an anchor, to a heading.
func TestLinksOfDocuments(t *testing.T) {
	texts := documents(t)
	for doc, text := range texts {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(withoutCode(text), -1) {
			path, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			to := doc
			if path != "" {
				to = filepath.Join(filepath.Dir(doc), path)
			}
			_, err := os.Stat(to)
			assert.NoErrorf(t, err, "%s: link to %s", doc, m[1])
			if anchor != "" {
				assert.Containsf(t, anchors(texts[to]), anchor, "%s: link to %s: no such heading", doc, m[1])
			}
		}
	}
}

// TestDocsAreInTheIndex asserts that docs/README.md has a link to each page.
func TestDocsAreInTheIndex(t *testing.T) {
	texts := present(t)
	index := texts["docs/README.md"]
	for doc := range texts {
		if path, ok := strings.CutPrefix(doc, "docs/"); ok && path != "README.md" {
			assert.Contains(t, index, "]("+path+")")
		}
	}
}

// anchors returns the anchors that GitHub gives the headings of a document.
func anchors(text string) []string {
	var list []string
	for _, m := range regexp.MustCompile(`(?m)^#+ +(.+)$`).FindAllStringSubmatch(withoutCode(text), -1) {
		name := regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		list = append(list, strings.ReplaceAll(name, " ", "-"))
	}
	return list
}

// withoutCode removes the fenced blocks.
func withoutCode(text string) string {
	return regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(text, "")
}

// eachGoFile calls use with each source file of the repository. Git's own directory changes under the hands of a walk.
func eachGoFile(t *testing.T, use func(path string, source []byte)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git": // in a work tree it is a file
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go"):
			return nil
		}
		source, err := os.ReadFile(path)
		use(path, source)
		return err
	}))
}

// TestDocsNameTests asserts that the tests, benchmarks and examples that documents name exist: anywhere in the
// module, and in the package if it follows, as in "`TestA`, `TestB` in volume".
func TestDocsNameTests(t *testing.T) {
	exist := map[string][]string{} // the directories of each name
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w+)\(`)
	eachGoFile(t, func(path string, source []byte) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, m := range declaration.FindAllStringSubmatch(string(source), -1) {
			exist[m[1]] = append(exist[m[1]], filepath.ToSlash(filepath.Dir(path)))
		}
	})
	name := regexp.MustCompile("`((?:Test|Fuzz|Benchmark|Example)[A-Z]\\w*)`")
	inPackage := regexp.MustCompile("((?:`[A-Z]\\w+`(?:, | and )?)+) in ([a-z][\\w/]*)")
	named := 0
	for doc, text := range present(t) {
		for _, m := range name.FindAllStringSubmatch(text, -1) {
			named++
			assert.NotEmptyf(t, exist[m[1]], "%s: %s does not exist", doc, m[1])
		}
		for _, m := range inPackage.FindAllStringSubmatch(text, -1) {
			if info, err := os.Stat(m[2]); err != nil || !info.IsDir() {
				continue // a word
			}
			for _, n := range name.FindAllStringSubmatch(m[1], -1) {
				assert.Truef(t, slices.Contains(exist[n[1]], m[2]), "%s: %s is not in %s", doc, n[1], m[2])
			}
		}
	}
	require.Greater(t, named, 200)
}

// TestTroubleHasRealLines asserts that the lines that docs/operate/trouble.md has as symptoms are in the program: "…"
// stands for what differs.
func TestTroubleHasRealLines(t *testing.T) {
	var source strings.Builder
	eachGoFile(t, func(path string, text []byte) {
		if !strings.HasSuffix(path, "_test.go") {
			source.Write(text)
		}
	})
	text := source.String()
	rows := regexp.MustCompile(`(?m)^\| (.*?) \| `).FindAllStringSubmatch(documents(t)["docs/operate/trouble.md"], -1)
	require.Greater(t, len(rows), 25)
	for _, row := range rows {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			parts := strings.Split(m[1], "…")
			for i := range parts {
				parts[i] = regexp.QuoteMeta(parts[i])
			}
			assert.Regexp(t, strings.Join(parts, `.{1,60}`), text, "%s is not in the program", m[1])
		}
	}
}
