package users

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseIDMap(t *testing.T) {
	for text, want := range map[string][]Range{
		"         0          0 4294967295\n":                                   nil,
		"         0     131072      65536\n":                                   {{2 * Unit, Unit}},
		"         0       1000          1\n         1     100000      65536\n": {{1000, 1}, {100000, 65536}},
		"":                        nil,
		"a b c\n1 2\n0 0 0\n":     nil,
		"0 4294967295 2\n0 5 1\n": {{5, 1}},
	} {
		assert.Equal(t, want, parseIDMap(text), "%q", text)
	}
}

func TestInUse(t *testing.T) {
	proc := t.TempDir()
	for path, text := range map[string]string{
		"1/uid_map": "0 0 4294967295\n", "1/gid_map": "0 0 4294967295\n",
		"20/uid_map": "0 131072 65536\n", "20/gid_map": "0 131072 65536\n",
		"21/uid_map": "0 131072 65536\n", "21/gid_map": "0 262144 65536\n",
		"self/uid_map": "0 655360 65536\n", "22/status": "",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(proc, filepath.Dir(path)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(proc, path), []byte(text), 0o600))
	}
	used, err := inUseBelow(proc)
	require.NoError(t, err)
	assert.ElementsMatch(t, []Range{{2 * Unit, Unit}, {4 * Unit, Unit}}, used)

	require.NoError(t, os.Mkdir(filepath.Join(proc, "22/uid_map"), 0o700))
	used, err = inUseBelow(proc)
	require.Error(t, err)
	assert.Len(t, used, 2, "the others are known")
	_, err = inUseBelow(filepath.Join(proc, "missing"))
	require.Error(t, err)

	_, err = inUse()
	require.NoError(t, err, "the machine itself")
}
