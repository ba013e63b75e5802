package repository_test

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

// unlimitedReads are the files and directories of this repository whose code reads without a time limit, with what it
// reads. What a user names is read by a safefile.Reader.
var unlimitedReads = map[string]string{
	"cluster/node/":                      "/etc/hosts, and files of the kernel",
	"kubelet/check.go":                   "files of the kernel, and directories of a kubelet",
	"kubelet/internal/local/disk.go":     "directories of the agent",
	"kubelet/internal/local/gonelogs.go": "directories of the agent",
	"kubelet/internal/local/left.go":     "a file of the agent",
	"kubelet/metrics.go":                 "a file of the kernel",
	"kubelet/host.go":                    "files of the kernel",
	"kubelet/internal/client/":           "what a command copies: a second signal ends it",
	"kubelet/internal/config/":           "in a call with a time limit of its own",
	"kubelet/internal/host/":             "files of the kernel",
	"kubelet/internal/ui/restart.go":     "a file of the kernel",
	"kubelet/stop.go":                    "directories of the agent",
	"examples/vendor/main.go":            "a device, with a deadline",
	"gc/":                                "logs, links to them and a record, all of the agent",
	"history/":                           "a file of the agent",
	"internal/csidriver/":                "tests",
	"internal/loop/":                     "files of the kernel, and devices, for the pod that has them",
	"internal/machine/":                  "files of the kernel",
	"internal/mounting/format.go":        "a disk, in a call that stays behind when its context ends",
	"node/images/credentials/config.go":  "in a call of a safefile.Reader",
	"node/images/records/":               "files of the agent",
	"internal/safefile/":                 "the functions themselves",
	"metrics/prometheus/":                "files of the kernel",
	"podconfig/checkpoint/":              "in a call of a safefile.Reader",
	"node/cgroup/":                       "files of the kernel",
	"node/devices/plugin/":               "the directory of sockets of the agent",
	"node/eviction/":                     "files of the kernel",
	"node/internal/":                     "files of the kernel, and directories of the agent",
	"node/oom/":                          "files of the kernel",
	"node/plugins/":                      "the directory of sockets of the agent",
	"node/shutdown/":                     "files of the agent, and of a fake",
	"node/threads/":                      "files of the kernel",
	"node/users/":                        "files of the agent and of the kernel",
	"runtime/cri/":                       "/etc/hosts, files of the kernel, and of the agent",
	"runtime/crilog/":                    "logs",
	"runtime/process/":                   "/etc/resolv.conf, files of the kernel, and of the runtime",
	"runtime/runtimetest/":               "tests",
	"node/stats/":                        "files of the kernel",
	"syncloop/":                          "files of the agent, and the directory of pods",
	"node/volume/":                       "directories of the agent, and files of the kernel",
}

// TestReadsHaveATimeLimit asserts that nothing new is read without one: a read of what a user names can wait for ever.
func TestReadsHaveATimeLimit(t *testing.T) {
	read := regexp.MustCompile(
		`\b(os\.(ReadFile|Open|ReadDir)|safefile\.ReadFile|tls\.LoadX509KeyPair|clientcmd\.LoadFromFile)\(`)
	used := map[string]bool{}
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (path == "test" || path != "." && strings.HasPrefix(entry.Name(), ".")):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if code, _, _ := strings.Cut(line, "//"); !read.MatchString(code) {
				continue
			}
			allowed := ""
			for prefix := range unlimitedReads {
				if strings.HasPrefix(filepath.ToSlash(path), prefix) {
					allowed = prefix
				}
			}
			used[allowed] = true
			assert.NotEmpty(t, allowed, "%s: %s: read it with a safefile.Reader, or say why not in unlimitedReads",
				path, strings.TrimSpace(line))
		}
		return nil
	}))
	for prefix := range unlimitedReads {
		assert.True(t, used[prefix], "%s: nothing is read there", prefix)
	}
}
