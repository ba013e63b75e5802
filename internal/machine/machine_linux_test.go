package machine_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/machine"
)

func TestUserNamespace(t *testing.T) {
	assert.False(t, machine.IsUserNamespace("         0          0 4294967295\n"))
	assert.True(t, machine.IsUserNamespace("         0     100000      65536\n"))
	assert.True(t, machine.IsUserNamespace("         0       1000          1\n         1     100000      65536\n"))
	assert.True(t, machine.IsUserNamespace(""), "before its map is written")
}

func TestFacts(t *testing.T) {
	total, err := machine.TotalMemory()
	require.NoError(t, err)
	assert.Greater(t, total, int64(16<<20))
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	require.NoError(t, err)
	assert.Equal(t, strings.TrimSpace(string(release)), machine.KernelRelease())
}

func TestFileLabel(t *testing.T) {
	for contexts, want := range map[string]string{
		"# comment\nprocess = \"u:r:container_t:s0\"\nfile = \"u:object_r:container_file_t:s0\"\nro_file=\"x:y:z\"\n": "u:object_r:container_file_t:s0",
		"process=u:r:t\nfile=u:object_r:f_t\n":              "u:object_r:f_t",
		"process=u:r:t:s0-s0:c0.c1023\nfile=u:object_r:f_t": "u:object_r:f_t:s0-s0:c0.c1023",
		"#process=u:r:t:s0\nfile=u:object_r:f_t:s0\n":       "",
		"process=u:r:t:s0\nfile=f_t\n":                      "",
		"":                                                  "",
	} {
		assert.Equal(t, want, machine.FileLabelIn(contexts), contexts)
	}
}

func TestMayMount(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tx\nCapPrm:\t0\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n":    true,
		"Name:\tx\nCapEff:\t0000000000200000\n":                            true,
		"Name:\tx\nCapEff:\t00000000a80425fb\nCapBnd:\t000001ffffffffff\n": false,
		"": false,
	} {
		assert.Equal(t, want, machine.HasAdmin(status), status)
	}
	assert.False(t, machine.MayMount() && machine.InUserNamespace())
}
