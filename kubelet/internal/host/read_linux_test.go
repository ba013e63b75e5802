package host

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNoswap(t *testing.T) {
	for release, want := range map[string]bool{
		"6.4.0": true, "6.18.44-fc": true, "7.0-rc1": true, "6.4-rc1": true, "6.3.9": false, "5.15.0-91-generic": false, "": false, "x.y": false,
	} {
		assert.Equal(t, want, hasNoswap(release), release)
	}
}

// The process of the test is left as it is: a child is changed. A process may always raise its score
// and lower its limit.
func TestSet(t *testing.T) {
	if os.Getenv("HOST_TEST_CHILD") != "" {
		p := Decide(settings(t, "", cri, "--oom-score-adj=777", "--max-open-files=512"),
			Facts{OOMScoreAdj: Read().OOMScoreAdj, OpenFiles: Read().OpenFiles})
		require.NoError(t, p.Set())
		now := Read()
		assert.Equal(t, "777", now.OOMScoreAdj)
		assert.Equal(t, uint64(512), now.OpenFiles)
		return
	}
	before := Read()
	require.NotEmpty(t, before.OOMScoreAdj)
	require.NotZero(t, before.OpenFiles)
	require.NotEmpty(t, before.Kernel)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSet$")
	cmd.Env = append(os.Environ(), "HOST_TEST_CHILD=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Equal(t, before, Read())
}

// Reading changes nothing, and finds what the machine has.
func TestRead(t *testing.T) {
	f := Read()
	assert.Equal(t, os.Geteuid() == 0, f.Root)
	swaps, err := os.ReadFile("/proc/swaps")
	require.NoError(t, err)
	assert.Equal(t, strings.Count(string(swaps), "\n") > 1, f.Swap)
	_, err = os.Stat("/sys/fs/cgroup/cgroup.controllers")
	assert.Equal(t, err != nil, f.CgroupV1)
}
