package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/test/e2e/guest/job"
)

func TestModules(t *testing.T) {
	const dep = `kernel/net/9p/9pnet.ko: kernel/fs/netfs/netfs.ko
kernel/net/9p/9pnet_virtio.ko: kernel/net/9p/9pnet.ko kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko
kernel/drivers/virtio/virtio.ko:
kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/netfs/netfs.ko
kernel/fs/some-other.ko:
`
	assert.Equal(t, []string{
		"kernel/drivers/virtio/virtio.ko", "kernel/drivers/virtio/virtio_ring.ko", "kernel/net/9p/9pnet.ko",
		"kernel/net/9p/9pnet_virtio.ko",
		"kernel/fs/netfs/netfs.ko", "kernel/fs/9p/9p.ko",
	}, modules(dep, "9pnet_virtio", "built_in", "9p"))
	assert.Equal(t, []string{"kernel/fs/some-other.ko"}, modules(dep, "some_other"))
}

// Busybox unpacks what is written, as the kernel does.
func TestCpio(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	require.NoError(t, err)
	var archive bytes.Buffer
	c := &cpio{w: &archive}
	c.dir("d")
	for _, content := range []string{"", "1", "12", "123", "1234"} {
		c.file("d/f"+content, 0o755, []byte(content))
	}
	require.NoError(t, c.close())
	dir := t.TempDir()
	cmd := exec.Command(busybox, "cpio", "-i", "-d")
	cmd.Dir, cmd.Stdin = dir, &archive
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, content := range []string{"", "1", "12", "123", "1234"} {
		path := filepath.Join(dir, "d/f"+content)
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, content, string(got))
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o755), info.Mode())
	}
}

func TestFind(t *testing.T) {
	root := t.TempDir()
	for path, content := range map[string]string{
		"a/a_test.go":          "package a\n\nfunc TestGuestOne(t *testing.T) {}\n\nfunc TestGuestSystemdTwo(t *testing.T) {}\n\nfunc TestGuestNUMA(t *testing.T) {}\n\nfunc TestGuestSELinux(t *testing.T) {}\n\nfunc TestThree(t *testing.T) {}\n",
		"a/b/b_test.go":        "package b\n\nfunc TestFour(t *testing.T) {}\n",
		"a/testdata/c_test.go": "package c\n\nfunc TestGuestFive(t *testing.T) {}\n",
		"d/d.go":               "package d\n\nfunc TestGuestSix(t *testing.T) {}\n",
		"e/e_test.go":          "package e\n\nfunc TestGuestSeven(t *testing.T) {}\n",
	} {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	list, err := find(root, regexp.MustCompile("."))
	require.NoError(t, err)
	found := map[string][]string{}
	for _, kind := range guestKinds {
		for _, r := range runs(list, kind.name) {
			found[kind.name] = append(found[kind.name], r.tests...)
		}
	}
	assert.Equal(t, map[string][]string{
		"plain": {"TestGuestOne", "TestGuestSeven"}, "systemd": {"TestGuestSystemdTwo"}, "numa": {"TestGuestNUMA"},
		"selinux": {"TestGuestSELinux"},
	}, found)
	list, err = find(root, regexp.MustCompile("Seven$"))
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, filepath.Join(root, "e"), list[0].dir)
}

// A run is a success if each test has run and passed; a skip is none, nor is one of a subtest.
func TestProblems(t *testing.T) {
	for _, test := range []struct {
		name, output string
		exit         job.Exit
		want         string
	}{
		{"passed", "=== RUN TestGuestA\n--- PASS: TestGuestA (1.00s)\n--- PASS: TestGuestB (0.00s)\nPASS\n", job.Exit{}, ""},
		{"skipped", "--- PASS: TestGuestA (1.00s)\n--- SKIP: TestGuestB (0.00s)\nPASS\n", job.Exit{}, "--- SKIP: TestGuestB (0.00s); TestGuestB has not passed"},
		{"subtest skipped", "--- PASS: TestGuestA (1.00s)\n    --- SKIP: TestGuestA/x (0.00s)\n--- PASS: TestGuestB (0.00s)\n", job.Exit{}, "--- SKIP: TestGuestA/x (0.00s)"},
		{"failed", "--- PASS: TestGuestA (1.00s)\n--- FAIL: TestGuestB (0.00s)\nFAIL\n", job.Exit{Code: 1}, "--- FAIL: TestGuestB (0.00s); TestGuestB has not passed; exit status 1"},
		{"ended", "--- PASS: TestGuestA (1.00s)\n", job.Exit{}, "TestGuestB has not passed"},
		{"not started", "", job.Exit{Code: 127, Error: "no such file"}, "TestGuestA has not passed; TestGuestB has not passed; no such file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &testRun{testPackage: &testPackage{}, tests: []string{"TestGuestA", "TestGuestB"}}
			var lines []string
			for _, b := range []byte(test.output) { // output comes in parts
				r.receive([]byte{b}, func(line string) { lines = append(lines, line+"\n") })
			}
			assert.Equal(t, test.output, strings.Join(lines, ""))
			assert.Equal(t, test.want, strings.Join(r.problems(test.exit), "; "))
		})
	}
}

func TestDivided(t *testing.T) {
	unit := &testRun{testPackage: &testPackage{dir: "/src/node/oom"}}
	endToEnd := &testRun{testPackage: &testPackage{dir: "/src/test/e2e"}}
	assert.Equal(t, [][]*testRun{{endToEnd}, {unit}}, divided([]*testRun{unit, endToEnd}))
	assert.Equal(t, [][]*testRun{{endToEnd}}, divided([]*testRun{endToEnd}))
	assert.Empty(t, divided(nil))
}
