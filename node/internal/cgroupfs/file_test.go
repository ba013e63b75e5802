package cgroupfs

import (
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPathOf(t *testing.T) {
	for file, want := range map[string]string{
		"0::/a\n":                              "/a",
		"0::/a (deleted)\n":                    "/a",
		"12:pids:/p\n4:cpu,memory:/m\n0::/u\n": "/m",
		"4:memory:/m:with:colons\n":            "/m:with:colons",
		"1:name=systemd:/s\n0::/u\n":           "/u",
		"0::/../outside\n":                     "",
		"":                                     "",
		"x\n":                                  "",
	} {
		assert.Equal(t, want, PathOf(file, "memory"), file)
	}
}

func TestContainerOf(t *testing.T) {
	for name, want := range map[string]string{"c1": "c1", "cri-containerd-c1.scope": "c1", "crio-c1.scope": "c1",
		"c1.scope": "c1", "x-c1": "x-c1", "": ""} {
		assert.Equal(t, want, ContainerOf(name), name)
	}
}

func TestDir(t *testing.T) {
	v2, v1 := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(v2, "cgroup.controllers"), nil, 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(v1, "pids/a"), 0o700))
	dir, legacy, err := Dir(v2, "pids", "/a")
	assert.Equal(t, []any{filepath.Join(v2, "a"), false, nil}, []any{dir, legacy, err})
	dir, legacy, err = Dir(v1, "pids", "/a")
	assert.Equal(t, []any{filepath.Join(v1, "pids/a"), true, nil}, []any{dir, legacy, err})
	_, _, err = Dir(v1, "memory", "/a")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestNumbers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	for text, want := range map[string]int64{"7\n": 7, "max\n": math.MaxInt64, "9223372036854771712\n": math.MaxInt64} {
		write(text)
		n, err := Number(file)
		require.NoError(t, err)
		assert.Equal(t, want, n)
	}
	write("x")
	_, err := Number(file)
	assert.Error(t, err)
	write("low 0\nmax 12\nbad -1\nalone\n" + strings.Repeat("x", 1<<20))
	counts, err := Counts(file)
	require.NoError(t, err)
	assert.Equal(t, map[string]uint64{"low": 0, "max": 12}, counts)
	_, err = Counts(file + "-missing")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}
