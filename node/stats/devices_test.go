package stats

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// A device that a runtime reports by its number has its name, as with cAdvisor.
func TestNamesOfDevices(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "proc"), 0o700))
	for number, uevent := range map[string]string{
		"8:0": "MAJOR=8\nMINOR=0\nDEVNAME=sda\nDEVTYPE=disk\n", "253:1": "DEVNAME=mapper/data\n", "7:0": "MAJOR=7\n",
	} {
		block := filepath.Join(dir, "sys/dev/block", number)
		require.NoError(t, os.MkdirAll(block, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(block, "uevent"), []byte(uevent), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "uevent"), []byte("DEVNAME=escaped\n"), 0o600))
	names := newDeviceNames(machine{proc: filepath.Join(dir, "proc")})
	f := runtime.MetricFamily{Name: "container_fs_reads_total", Labels: []string{"pod", "device"}}
	devices := []string{"8:0", "8:0", "253:1", "7:0", "9:9", "/dev/sdb", "", "8", "../../..:0", "8:0/../8:0", "-8:0"}
	for _, device := range devices {
		f.Samples = append(f.Samples, runtime.MetricSample{LabelValues: []string{"8:0", device}, Value: 1})
	}
	var got []string
	for _, s := range saneFamilies([]runtime.MetricFamily{f}, names, time.Now())[0].Samples {
		assert.Equal(t, "8:0", s.LabelValues[0], "another label")
		got = append(got, s.LabelValues[1])
	}
	assert.Equal(t, []string{"/dev/sda", "/dev/sda", "/dev/mapper/data", "7:0", "9:9", "/dev/sdb", "", "8",
		"../../..:0", "8:0/../8:0", "-8:0"}, got)
	assert.Equal(t, "8:0", f.Samples[0].LabelValues[1], "what the runtime has returned is not changed")

	for i := range 2 * maxDevices {
		assert.Equal(t, fmt.Sprintf("1:%d", i), names.of(fmt.Sprintf("1:%d", i)))
	}
	assert.Len(t, names.found, maxDevices)
}
