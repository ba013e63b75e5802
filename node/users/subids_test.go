package users

import (
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseSubordinateIDs(t *testing.T) {
	for out, want := range map[string]Range{
		"0: kubelet 65536 7208960\n": {Unit, 110 * Unit},
		"0: kubelet 65536 7208960":   {Unit, 110 * Unit},
	} {
		got, err := parseSubordinateIDs(out)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, out := range []string{"", "\n", "0: kubelet 65536\n", "0: kubelet 65536 1\n1: kubelet 131072 1\n",
		"0: kubelet x 1\n", "0: kubelet 1 -1\n", "0: kubelet 1 4294967296\n", "0:\nkubelet 1 1"} {
		_, err := parseSubordinateIDs(out)
		assert.Error(t, err, "%q", out)
	}
}

func TestSubordinateIDs(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("shell scripts")
	}
	me, err := user.Current()
	require.NoError(t, err)
	script := func(text string) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "getsubids"), []byte("#!/bin/sh\n"+text+"\n"), 0o700))
		t.Setenv("PATH", dir)
	}
	for name, tc := range map[string]struct {
		user, script string
		want         Range
		wantErr      string
	}{
		"no such user": {user: "no-such-user-of-a-test", script: "echo unused"},
		"found":        {script: `echo "0: me 131072 65536"`, want: Range{2 * Unit, Unit}},
		"no IDs":       {script: "echo nothing here >&2; exit 1", wantErr: "nothing here"},
		"no group IDs": {script: `[ "$1" != -g ] || exit 1; echo "0: me 131072 65536"`, wantErr: "the subordinate group IDs of"},
		"others":       {script: `echo "0: me 131072 65536 $1"`, wantErr: "differ"},
		"several":      {script: `echo "0: me 131072 65536"; echo "1: me 262144 65536"`, wantErr: "not one range"},
	} {
		t.Run(name, func(t *testing.T) {
			script(tc.script)
			if tc.user == "" {
				tc.user = me.Username
			}
			got, err := SubordinateIDs(t.Context(), tc.user)
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
		})
	}
	t.Setenv("PATH", t.TempDir())
	got, err := SubordinateIDs(t.Context(), me.Username)
	require.NoError(t, err, "no program")
	assert.Zero(t, got)
}
