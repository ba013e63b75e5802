package testenv

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParallel(t *testing.T) {
	for _, test := range []struct{ now, least, want int }{{2, 8, 8}, {8, 8, 8}, {64, 8, 64}, {2, 0, 2}} {
		flags := flag.NewFlagSet("test", flag.ContinueOnError)
		n := flags.Int("test.parallel", test.now, "")
		parallel(flags, test.least)
		assert.Equal(t, test.want, *n)
		flags.Visit(func(f *flag.Flag) { t.Errorf("flag %s counts as given", f.Name) })
	}
	parallel(flag.NewFlagSet("another program", flag.ContinueOnError), 8)
	other := flag.NewFlagSet("another flag", flag.ContinueOnError)
	word := other.String("test.parallel", "all", "")
	parallel(other, 8)
	assert.Equal(t, "all", *word)

	Parallel(0)
	assert.NotNil(t, flag.Lookup("test.parallel"), "the flag of package testing")
}

func TestMemoryDir(t *testing.T) {
	for _, memory := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		var dir string
		t.Run("test", func(t *testing.T) {
			dir = memoryDir(t, memory)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
			siblings, err := os.ReadDir(filepath.Dir(dir))
			require.NoError(t, err)
			assert.Len(t, siblings, 1)
			assert.NotEqual(t, dir, memoryDir(t, memory))
		})
		assert.NoDirExists(t, filepath.Dir(dir))
	}
	assert.DirExists(t, MemoryDir(t))
}
