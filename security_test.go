package kubeletkit_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/security.md says which test shows each of its claims. These tests exist.
func TestSecurityPageNamesTests(t *testing.T) {
	page, err := os.ReadFile("docs/security.md")
	require.NoError(t, err)
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range declaration.FindAllSubmatch(source, -1) {
			declared[string(m[1])] = true
		}
		return err
	}))
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllSubmatch(page, -1)
	require.Greater(t, len(named), 50)
	for _, m := range named {
		assert.True(t, declared[string(m[1])], "%s does not exist", m[1])
	}
}
