package checkpoint_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podconfig/checkpoint"
)

func TestState(t *testing.T) {
	t.Parallel()
	dir, key := t.TempDir(), bytes.Repeat([]byte{1}, 16)
	file := filepath.Join(dir, "state", "tokens.checkpoint")
	load := func(s *checkpoint.Dir) map[string]string {
		var state map[string]string
		s.LoadState("tokens", &state)
		return state
	}
	var l logs
	plain := checkpoint.Options{Logger: l.logger()}
	life(t, dir, plain, func(s *checkpoint.Dir, _ []*v1.Pod) {
		assert.Nil(t, load(s))
		s.KeepState("tokens", map[string]string{"a": "hunter2"})
		s.KeepState("../escape", "x")
	})
	assert.NoFileExists(t, filepath.Join(dir, "escape.checkpoint"))
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	life(t, dir, plain, func(s *checkpoint.Dir, _ []*v1.Pod) {
		assert.Equal(t, map[string]string{"a": "hunter2"}, load(s))
	})
	assert.Empty(t, l.take())

	sealed := checkpoint.Options{Logger: l.logger(), Key: key}
	life(t, dir, sealed, func(s *checkpoint.Dir, _ []*v1.Pod) {
		assert.Nil(t, load(s), "it can be forged")
		assert.NoFileExists(t, file)
		s.KeepState("tokens", map[string]string{"b": "hunter2"})
	})
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.NotContains(t, string(data), "hunter2")
	life(t, dir, sealed, func(s *checkpoint.Dir, _ []*v1.Pod) {
		assert.Equal(t, map[string]string{"b": "hunter2"}, load(s))
	})
	life(t, dir, plain, func(s *checkpoint.Dir, _ []*v1.Pod) {
		assert.Nil(t, load(s), "the key is missing")
		assert.FileExists(t, file)
	})
	life(t, dir, sealed, func(s *checkpoint.Dir, _ []*v1.Pod) { s.KeepState("tokens", nil) })
	assert.NoFileExists(t, file)
	assert.NotContains(t, l.take(), "hunter2")
}

func TestDamagedState(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "state", "s.checkpoint")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	packed, err := checkpoint.Pack("s", []byte(`"text"`))
	require.NoError(t, err)
	for name, content := range map[string][]byte{"damaged": packed[:len(packed)-1], "foreign": []byte("x"),
		"of another type": packed} {
		require.NoError(t, os.WriteFile(file, content, 0o600), name)
		var l logs
		life(t, dir, checkpoint.Options{Logger: l.logger()}, func(s *checkpoint.Dir, _ []*v1.Pod) {
			var state map[string]string
			assert.False(t, s.LoadState("s", &state), name)
		})
		assert.Contains(t, l.take(), "it was removed", name)
		assert.NoFileExists(t, file, name)
	}
}
