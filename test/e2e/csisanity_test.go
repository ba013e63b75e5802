package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// sanityOf names the driver that csi-sanity tests in this process, and sanityIn is the directory for it. The suite runs
// once in a process.
const (
	sanityOf = "KUBELETKIT_E2E_SANITY"
	sanityIn = "KUBELETKIT_E2E_SANITY_DIR"
)

// sanityDrivers are those that csi-sanity tests. Those without root have links in the place of mounts.
var sanityDrivers = map[string]struct {
	options csidriver.Options
	access  string
	root    bool
}{
	"directories": {csidriver.Options{}, "mount", true},
	"devices":     {csidriver.Options{}, "block", true},
	"fileSystems": {csidriver.Options{FileSystem: "ext4"}, "mount", true},
	"links":       {csidriver.Options{}, "mount", false},
	"files":       {csidriver.Options{}, "block", false},
}

// The stand-in for drivers is a driver: csi-sanity of kubernetes-csi finds no defect.
func TestSanityOfOurDriver(t *testing.T) {
	if name := os.Getenv(sanityOf); name != "" {
		sanityHere(t, name, os.Getenv(sanityIn))
		return
	}
	self, err := os.Executable()
	require.NoError(t, err)
	program := filepath.Join(sharedDir(t), "e2e.test") // that of go test is not for other users
	data, err := os.ReadFile(self)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, data, 0o755))
	for name, driver := range sanityDrivers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if driver.root {
				Need(t, "mkfs.ext4", "resize2fs")
				if _, err := os.Stat("/dev/loop-control"); err != nil {
					Skip(t, "needs loop devices: %v", err)
				}
			}
			dir := sharedDir(t)
			cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestSanityOfOurDriver$",
				"-ginkgo.no-color")
			cmd.Env = append(os.Environ(), sanityOf+"="+name, sanityIn+"="+dir, "TMPDIR="+dir, "HOME="+dir)
			cmd.Dir = dir
			if !driver.root && os.Geteuid() == 0 {
				const nobody = 65534
				require.NoError(t, os.Chown(dir, nobody, nobody))
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			}
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			result := regexp.MustCompile(`(\d+) Passed \| 0 Failed.*`).FindSubmatch(out)
			require.NotNil(t, result, "%s", out)
			assert.Greater(t, len(result[1]), 1, "%s", out)
			t.Logf("%s", result[0])
		})
	}
}

// sharedDir returns a directory with a short path in which other users can have theirs.
func sharedDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/tmp", "csi")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

func sanityHere(t *testing.T, name, dir string) {
	test := sanityDrivers[name]
	test.options.Dir, test.options.Socket = filepath.Join(dir, "driver"), filepath.Join(dir, "csi.sock")
	test.options.Topology, test.options.MaxVolumes = map[string]string{"zone": "a"}, 3
	driver, _ := csidriver.Start(t, test.options)
	assert.Equal(t, test.root, driver.Mounts())
	config := sanity.NewTestConfig()
	config.Address = "unix://" + driver.Socket()
	config.TargetPath, config.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
	config.TestVolumeAccessType = test.access
	config.TestNodeVolumeAttachLimit = true
	config.TestVolumeSize, config.TestVolumeExpandSize = 8<<20, 16<<20
	sanity.Test(t, config) // does not do snapshots, clones and changes of attributes, which the driver does not have
}
